"""Keep others out of a file that is there already."""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def close_to_others(descriptor: int) -> bool:
    """Make an open file private (0600) if it is the user's own; return False for one that stays open to others.

    Devices and pipes stay as they are, and so do files of other users: they may have to write there, too. Some file
    systems change no modes.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & 0o077:
        return True
    if found.st_uid == os.geteuid():
        with suppress(OSError):
            os.fchmod(descriptor, 0o600)
    return not os.fstat(descriptor).st_mode & 0o077
