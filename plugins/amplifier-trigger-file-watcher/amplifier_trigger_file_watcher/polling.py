"""Look again and again, on file systems without events."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .manifest import Facts

MOUNTS = "/proc/self/mountinfo"
SILENT = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "vboxsf")
SILENT_PREFIXES = ("fuse.", "fuse", "virtiofs", "drvfs", "prl_fs", "vmhgfs")
LOCAL = ("fuseblk", "fusectl", "fuse.lxcfs", "fuse.portal")
"""Kinds with such a prefix that are disks, or hold no files of users."""


class Poller:
    """Compares each look of `read_facts` with the one before."""

    def __init__(self, read_facts: Callable[[], dict[str, Facts]]) -> None:
        self._read_facts = read_facts
        self._last: dict[str, Facts] = {}

    def look(self) -> list[str]:
        """Return the paths with other facts than at the last look."""
        before, self._last = self._last, self._read_facts()
        gone = before.keys() - self._last.keys()
        return [*gone, *(path for path, facts in self._last.items() if before.get(path) != facts)]


def silent_file_system(base: str, mounts: Iterable[str] | None = None) -> str | None:
    """Return the kind of file system on or below `base` that has no events of changes by others; None without one.

    `mounts` are the lines of Linux's mountinfo; other systems have none, and count as never silent.
    """
    if mounts is None:
        try:
            mounts = Path(MOUNTS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return None
    at, here, below = "", None, None
    for place, kind in map(_parse_mount, mounts):
        if _inside(base, place) and len(place) >= len(at):
            at, here = place, kind  # of two mounted at one place, the later one is seen
        elif _inside(place, base) and _is_silent(kind):
            below = kind
    return here if here and _is_silent(here) else below


def _parse_mount(line: str) -> tuple[str, str]:
    """Return the place of a mount, and the kind of its file system."""
    front, _, back = line.partition(" - ")
    place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), front.split()[4])
    return place, back.split()[0]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_silent(kind: str) -> bool:
    return kind not in LOCAL and (kind in SILENT or kind.startswith(SILENT_PREFIXES))
