"""Looking again and again, where the operating system does not tell of changes: which paths may have changed."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .manifest import Facts

MOUNTS = "/proc/self/mountinfo"
SILENT = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "vboxsf")
SILENT_PREFIXES = ("fuse.", "fuse", "virtiofs", "drvfs", "prl_fs", "vmhgfs")
LOCAL = ("fuseblk", "fusectl", "fuse.lxcfs", "fuse.portal")
"""Of those that begin alike: disks, and what holds no files of users."""


class Poller:
    """Knows what every file looked like at the last look; `facts` looks."""

    def __init__(self, facts: Callable[[], dict[str, Facts]]) -> None:
        self._facts = facts
        self._last: dict[str, Facts] = {}

    def look(self) -> list[str]:
        """Return the paths that look different from how they did."""
        before, self._last = self._last, self._facts()
        gone = before.keys() - self._last.keys()
        return [*gone, *(path for path, facts in self._last.items() if before.get(path) != facts)]


def silent_file_system(base: str, mounts: Iterable[str] | None = None) -> str | None:
    """Return the kind of file system that `base` is on, or holds, if others change its files unheard; else None.

    `mounts` are the lines of Linux's mountinfo; where there is none, nothing is known to be silent.
    """
    if mounts is None:
        mounts = _read_mounts()
    at, here, below = "", None, None
    for place, kind in map(_mount, mounts):
        if _inside(base, place) and len(place) >= len(at):
            at, here = place, kind  # of two mounted at one place, the later one is seen
        elif _inside(place, base) and _is_silent(kind):
            below = kind
    return here if here and _is_silent(here) else below


def _read_mounts() -> list[str]:
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - may not exist
            return file.readlines()
    except OSError:
        return []


def _mount(line: str) -> tuple[str, str]:
    """Return where something is mounted, and the kind of its file system."""
    front, _, back = line.partition(" - ")
    place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), front.split()[4])
    return place, back.split()[0]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_silent(kind: str) -> bool:
    return kind not in LOCAL and (kind in SILENT or kind.startswith(SILENT_PREFIXES))
