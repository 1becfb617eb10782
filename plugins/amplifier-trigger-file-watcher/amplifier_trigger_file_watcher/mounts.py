"""Know the file systems at, above and below a folder, and hear of mounts and unmounts. Linux alone tells of them."""

from __future__ import annotations

import asyncio
import os
import re
import select
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MOUNTS = "/proc/self/mountinfo"
SILENT = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "vboxsf")
SILENT_PREFIXES = ("fuse.", "fuse", "virtiofs", "drvfs", "prl_fs", "vmhgfs")
LOCAL = ("fuseblk", "fusectl", "fuse.lxcfs", "fuse.portal")
"""Kinds with such a prefix that are disks, or hold no files of users."""


@frozen
class Mount:
    """A mounted file system: its number, its place, its kind, and what of which device it shows."""

    number: str
    place: str
    kind: str
    shown: str


def read_mounts(listed: bytes | None = None) -> list[Mount]:
    """Return all file systems in the order of their mounts; `listed` is the content of Linux's mountinfo."""
    if listed is None:
        try:
            listed = Path(MOUNTS).read_bytes()
        except OSError:  # another system
            return []
    return [_parse(line) for line in os.fsdecode(listed).split("\n") if line]


def find_around(base: str, mounts: Iterable[Mount]) -> list[Mount]:
    """Return the file systems at, above and below a folder."""
    return [mount for mount in mounts if _inside(base, mount.place) or _inside(mount.place, base)]


def silent_file_system(base: str, around: Iterable[Mount]) -> str | None:
    """Return the kind of file system on or below `base` that has no events of changes by others; None without one.

    `around` are those that `find_around` returns.
    """
    at, here, below = "", None, None
    for mount in around:
        if not _inside(base, mount.place):
            below = mount.kind if _is_silent(mount.kind) else below
        elif len(mount.place) >= len(at):
            at, here = mount.place, mount.kind  # of two mounted at one place, the later one is seen
    return here if here and _is_silent(here) else below


@contextmanager
def hearing_of_mounts(heard: Callable[[list[Mount]], None]) -> Iterator[None]:
    """Call `heard` on the event loop with all file systems after each mount and unmount, while the block runs.

    They are read once for all watchers. Nothing is called where the system cannot tell.
    """
    loop = asyncio.get_running_loop()
    poll = _polls.get(loop)
    if poll is None:
        with suppress(OSError, AttributeError):  # no file descriptor is left, or another system than Linux
            poll = _polls[loop] = _MountPoll(loop)
    if poll is None:
        yield
        return
    poll.listeners.append(heard)
    try:
        yield
    finally:
        poll.listeners.remove(heard)
        if not poll.listeners:
            del _polls[loop]
            poll.close()


class _MountPoll:
    """Waits for mounts, once for all watchers of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.listeners: list[Callable[[list[Mount]], None]] = []
        self._loop = loop
        self._poll = select.epoll()
        try:
            self._file = os.open(MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._poll.close()
            raise
        # The list of mounts is always readable: urgent data is its news. So the loop reads a poll for that alone.
        self._poll.register(self._file, select.EPOLLPRI)
        loop.add_reader(self._poll.fileno(), self._call)

    def close(self) -> None:
        self._loop.remove_reader(self._poll.fileno())
        self._poll.close()
        os.close(self._file)

    def _call(self) -> None:
        self._poll.poll(0)
        mounts = read_mounts()
        for heard in self.listeners:
            heard(mounts)


_polls: WeakKeyDictionary[asyncio.AbstractEventLoop, _MountPoll] = WeakKeyDictionary()


def _parse(line: str) -> Mount:
    front, _, back = line.partition(" - ")
    number, _, device, root, place, *_ = front.split(" ")  # names of places have other blanks, and other ends of lines
    if "\\" in place:
        place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place)
    return Mount(number, place, back.split(" ")[0], f"{device} {root}")


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_silent(kind: str) -> bool:
    return kind not in LOCAL and (kind in SILENT or kind.startswith(SILENT_PREFIXES))
