"""Tell whether this process can open one more file: libraries say only that they could not open theirs."""

from __future__ import annotations

import errno
import os

EXHAUSTED = (errno.EMFILE, errno.ENFILE)
"""The system's errors for a process, or a machine, with too many open files."""
NO_DESCRIPTOR = "no file descriptor is free. Raise the limit: ulimit -n"
"""What people are told of them."""


def lacks_descriptors() -> bool:
    """Return whether no file descriptor is free, for this process or the machine."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in EXHAUSTED
    return False
