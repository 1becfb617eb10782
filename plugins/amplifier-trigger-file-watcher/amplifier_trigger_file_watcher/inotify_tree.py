"""Watch a tree of folders on Linux by watchdog's reader of inotify, with one watch for each folder in scope.

`InotifyTree` is a callback of watchdog's reader, in place of the callback for recursive observers, because of

- ignored folders, such as node_modules: they get no watch, as the system allows only so many,
- the time to arm: one walk finds files and folders, watchdog's observer walks a second time,
- the watched folder itself: its move to another place is told,
- files moved away: watchdog's observer holds their events, and all behind them, for half a second.

Measured on 5,000 folders with 50,000 files, until armed: 1.7 to 1.9 times a bare scan with inotify; with watchdog's
observer 2.1 to 2.2 times. At most 2 is allowed.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING

from watchdog.observers.inotify_c import InotifyConstants, WatchCallback, WatchDescriptor

from .fingerprints import GONE
from .inotify_readers import SharedReader, end_use, take_reader
from .observing import PathNotices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from watchdog.observers.inotify_c import CallbackId, InotifyEvent

    from .observing import Notice

CREATED = InotifyConstants.IN_CREATE
IS_FOLDER = InotifyConstants.IN_ISDIR
UNMOUNTED = InotifyConstants.IN_UNMOUNT


class InotifyTree(WatchCallback):
    """Watches the folders that `enter` names; a moved folder is forgotten, and entered again in its new place.

    A walker calls `enter` for a folder before it looks into it, so that nothing falls between. All trees of a process
    share a reader. When its queue in the system overflowed, some watches may be out of date: each tree forgets all of
    its own, goes on with a new reader, and asks by '' for a walk through everything. `every_write` notices each write,
    else a file is noticed when its writer closes it.
    """

    def __init__(self, base: str, notice: Notice, *, every_write: bool) -> None:
        self._root = os.fsencode(base.rstrip(os.sep) + os.sep)
        self._notice, self._every_write = notice, every_write
        self._notices: PathNotices | None = None
        self._reader: SharedReader | None = None
        self._stopped = False
        self._lock = RLock()  # for all attributes below; never held while a reader ends, which calls back
        self._folders: dict[WatchDescriptor, str] = {}
        self._watches: dict[str, WatchDescriptor] = {}
        self._registrations: dict[WatchDescriptor, CallbackId] = {}
        self._begun: dict[WatchDescriptor, float] = {}

    async def start(self) -> None:
        """Begin to read the system's events. Raises `OSError`."""
        self._notices = PathNotices(self._notice)
        with self._lock:
            if not self._stopped:
                self._reader = take_reader(every_write=self._every_write)

    async def stop(self) -> None:
        """Watch no folder any more; the last tree ends the reader, and waits for its thread."""
        import asyncio

        with self._lock:
            self._stopped = True
            reader, marks = self._forget_all()
        if reader is not None:
            await asyncio.to_thread(end_use, reader, marks, wait=True)

    def enter(self, folder: str) -> None:
        """Watch one folder, from any thread; do nothing without it.

        Raises `OSError` for an unreadable folder, and when the system allows no more watches.
        """
        place = self._root + os.fsencode(folder.removesuffix("/"))  # a link with a slash behind it is followed
        with self._lock:
            if self._stopped:
                return
            if self._reader is None:
                raise OSError(errno.EMFILE, "inotify instance limit reached")
            try:
                watch, registration = self._reader.watch(place, self)
            except OSError as error:
                if error.errno not in GONE:
                    raise
            else:
                self._remember(watch, folder, registration)

    def add_barrier(self) -> float:
        """Return the time: what the system has queued by now is noticed as since an earlier one.

        Return 0 where a barrier cannot be had, as at the limit of watches.
        """
        now = time.monotonic()
        with self._lock, suppress(OSError):
            if self._reader is not None and (notices := self._notices) is not None:
                self._reader.add_barrier(lambda: notices.advance(now), self)
                return now
        return 0.0

    def watched_since(self, folders: Iterable[str]) -> float:
        """Return the time since which all these folders are watched; `inf` if one is not."""
        with self._lock:
            watches = [self._watches.get(folder) for folder in folders]
            return max(math.inf if watch is None else self._begun[watch] for watch in watches)

    def on_event(self, event: InotifyEvent) -> None:
        """Notice the path of an event; called by watchdog in the reader's thread, as are the next two."""
        with self._lock:
            folder = self._folders.get(event.wd)
            if folder is None:
                return
            if folder and not event.name and not event.mask & UNMOUNTED:  # its parent tells of all else, too
                return
            path = folder + os.fsdecode(event.name)
            if event.mask & IS_FOLDER and event.name:
                path += "/"
                if event.is_moved_from:
                    self._leave(path)
        assert self._notices is not None
        if event.mask == CREATED and not self._every_write and _will_be_closed(self._root + os.fsencode(path)):
            self._notices.hold(path)
            return
        self._notices.put(path, appeared=event.is_create or event.is_moved_to)

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """Forget a folder that is gone."""
        with self._lock:
            folder = self._folders.pop(wd, None)
            self._registrations.pop(wd, None)
            self._begun.pop(wd, None)
            if folder is not None and self._watches.get(folder) == wd:
                del self._watches[folder]

    def on_queue_overflow(self) -> None:
        """Begin again with a new reader: events were lost."""
        with self._lock:
            if self._stopped:
                return
            before, marks = self._forget_all()
            with suppress(OSError):  # without a reader, `enter` says so to the walker
                self._reader = take_reader(every_write=self._every_write, instead_of=before)
            assert self._notices is not None
            self._notices.advance(time.monotonic())  # barriers may be lost, too
        if before is not None:
            end_use(before, marks)
        self._notices.put("")

    def _forget_all(self) -> tuple[SharedReader | None, list[tuple[WatchDescriptor, CallbackId]]]:
        """Return the reader, and the marks of all folders, for `end_use`."""
        reader, self._reader = self._reader, None
        marks = list(self._registrations.items())
        for known in (self._folders, self._watches, self._registrations, self._begun):
            known.clear()
        return reader, marks

    def _remember(self, watch: WatchDescriptor, folder: str, registration: CallbackId) -> None:
        """Note a watch under its newest path; drop the earlier registration of a known folder."""
        assert self._reader is not None
        if watch < 0:  # watchdog's answer for a folder without permission
            self._reader.forget([(watch, registration)])
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        if (earlier := self._registrations.get(watch)) is not None:
            self._reader.forget([(watch, earlier)])
            if (before := self._folders[watch]) != folder and self._watches.get(before) == watch:
                del self._watches[before]
        if earlier is None or before != folder:
            self._begun[watch] = time.monotonic()
        self._registrations[watch], self._folders[watch], self._watches[folder] = registration, folder, watch

    def _leave(self, folder: str) -> None:
        """Stop watching a moved folder and all below; a walker enters them in their new place."""
        assert self._reader is not None
        for path in [path for path in self._watches if path.startswith(folder)]:
            watch = self._watches.pop(path)
            del self._folders[watch], self._begun[watch]
            self._reader.forget([(watch, self._registrations.pop(watch))])


def _will_be_closed(path: bytes) -> bool:
    """Return whether a created file was opened for writing; a link is complete when it is created."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
