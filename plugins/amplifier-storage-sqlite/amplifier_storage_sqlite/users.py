"""Find the other processes that hold a file open, where the system tells: on Linux, those of the same user."""

from __future__ import annotations

import os
from contextlib import suppress
from glob import iglob
from pathlib import Path

from amplifier_core.utils.secrets import redact_text

SHOWN = 80
"""Characters of a command line, at most."""


def name_users(path: Path) -> str:
    """Return the other processes that hold a file open, as a text for a message; '' where the system does not tell."""
    return ", ".join(find_users(path))


def find_users(path: Path) -> list[str]:
    """Return the number and the command line of each; none where the system does not tell."""
    file, pids = path.stat(), set[int]()
    for descriptor in iglob("/proc/[0-9]*/fd/*"):  # noqa: PTH207 - that of pathlib fails when a process ends meanwhile
        with suppress(OSError):  # it was closed meanwhile
            if os.path.samestat(Path(descriptor).stat(), file):
                pids.add(int(descriptor.split("/")[2]))
    found = []
    for pid in sorted(pids - {os.getpid()}):
        with suppress(OSError):  # it has ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
            found.append(f"process {pid} ({redact_text(' '.join(words.decode(errors='replace').split()))[:SHOWN]})")
    return found
