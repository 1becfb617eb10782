"""What Linux says of a tree: a watch on each folder, and events as paths that may have changed.

Folders that do not count are not watched: the system allows only so many. Where its queue overflowed, and on a new
folder, a path stands for everything below: whoever is told walks through it, and calls `enter` for each folder first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, OVERFLOW, IGNORED, IS_FOLDER = 0x400, 0x800, 0x4000, 0x8000, 0x4000_0000
ONLY_FOLDERS, NO_MORE_OF_UNLINKED = 0x0100_0000, 0x0400_0000

CHANGES = CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | ONLY_FOLDERS | NO_MORE_OF_UNLINKED
HEADER = struct.Struct("iIII")
READ_BYTES = 65_536
"""Some 2,000 events: others have their turn on the event loop before the next ones."""
GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG))
"""What is wrong with one folder, and not with watching."""


class InotifyObserver:
    """Calls `notice(paths)`, on the event loop that starts it, with paths relative to `base` that may have changed.

    A folder's path ends in a slash; '' is `base` itself, and means that everything may have changed. `written` says
    that every write counts, not only that a file was closed: whoever waits until a file is left alone needs it.
    """

    def __init__(self, base: str, notice: Callable[[list[str]], None], *, written: bool) -> None:
        self._root = os.fsencode(base.rstrip(os.sep) + os.sep)
        self._notice, self._written = notice, written
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._lock = Lock()
        self._descriptor = -1
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._below: dict[str, set[str]] = {}

    async def start(self) -> None:
        """Listen to the folders that are entered from now on. Raises `OSError`."""
        import asyncio

        self._loop = asyncio.get_running_loop()
        with self._lock:
            if not self._stopped:
                self._open()

    async def stop(self) -> None:
        """Listen no more."""
        with self._lock:
            self._stopped = True
            self._close()

    def enter(self, folder: str) -> None:
        """Watch one folder, from any thread. Raises `OSError` when the system allows no more, or has lost the queue."""
        mask = CHANGES | (MODIFY if self._written else 0) | (0 if folder else DELETE_SELF | MOVE_SELF)
        place = self._root + os.fsencode(folder)
        with self._lock:
            if self._stopped:
                return
            watch = self._libc.inotify_add_watch(self._descriptor, place, mask)
            if watch >= 0:
                self._remember(watch, folder)
            elif (code := ctypes.get_errno()) not in GONE:
                raise OSError(code, os.strerror(code), os.fsdecode(place))

    def _open(self) -> None:
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        assert self._loop is not None
        self._loop.add_reader(self._descriptor, self._read)

    def _close(self) -> None:
        if self._descriptor >= 0 and self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        for known in (self._paths, self._watches, self._below):
            known.clear()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return
        with self._lock:
            paths = [path for watch, mask, name in _events(data) if (path := self._path(watch, mask, name)) is not None]
        if paths:
            self._notice(paths)

    def _path(self, watch: int, mask: int, name: bytes) -> str | None:
        """Return the path that an event is of; None for one that says nothing new."""
        if mask & OVERFLOW:
            return self._begin_again()
        folder = self._paths.get(watch)
        if folder is None:
            return None
        if mask & IGNORED:
            self._forget(watch, folder)
            return None
        path = folder + os.fsdecode(name)
        if mask & IS_FOLDER and name:
            path += "/"
            if mask & MOVED_FROM:
                self._leave(path)
        elif mask & CREATE and not self._written and _will_be_closed(self._root + os.fsencode(path)):
            return None
        return path

    def _begin_again(self) -> str:
        """Forget all watches, of which some may be out of date: events were lost."""
        self._close()
        try:
            self._open()
        except OSError:
            self._descriptor = -1  # who walks through the tree now is told by `enter`
        return ""

    def _remember(self, watch: int, folder: str) -> None:
        before = self._paths.get(watch)
        if before is not None and before != folder:
            self._watches.pop(before, None)
        self._paths[watch] = folder
        self._watches[folder] = watch
        if folder:
            self._below.setdefault(_parent(folder), set()).add(folder)

    def _forget(self, watch: int, folder: str) -> None:
        del self._paths[watch]
        if self._watches.get(folder) == watch:
            del self._watches[folder]
            self._drop(folder)

    def _leave(self, folder: str) -> None:
        """Stop watching a folder that was moved away, with all below: where it went, it is entered anew."""
        for path in [*self._below.get(folder, ())]:
            self._leave(path)
        watch = self._watches.pop(folder, None)
        if watch is not None:
            self._paths.pop(watch, None)
            self._libc.inotify_rm_watch(self._descriptor, watch)
        self._drop(folder)

    def _drop(self, folder: str) -> None:
        self._below.pop(folder, None)
        beside = self._below.get(_parent(folder))
        if beside is not None:
            beside.discard(folder)


def _events(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield watch, mask and name of each event."""
    at = 0
    while at < len(data):
        watch, mask, _, length = HEADER.unpack_from(data, at)
        at += HEADER.size + length
        yield watch, mask, data[at - length : at].rstrip(b"\0")


def _parent(folder: str) -> str:
    return folder[: folder.rfind("/", 0, -1) + 1]


def _will_be_closed(path: bytes) -> bool:
    """Return whether a created file was opened for writing: links are complete when they are created."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
