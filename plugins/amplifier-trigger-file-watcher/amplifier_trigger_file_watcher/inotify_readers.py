"""Share readers of inotify between all watchers of a process: the system allows a user only so many (often 128)."""

from __future__ import annotations

import errno
import os
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyFD, Mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.observers.inotify_c import InotifyEvent, WatchCallback, WatchDescriptor

CHANGES = (
    InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_ONLYDIR
    | InotifyConstants.IN_DONT_FOLLOW
    | InotifyConstants.IN_EXCL_UNLINK
)
"""One mask for all folders: the system keeps the last one given for a folder, and several watchers may watch it."""

BARRIER_PLACE = os.fsencode(os.devnull)
"""A file that every system has, and no tree watches: trees watch folders."""


class _Reader(InotifyFD):
    """Calls back for the end of a watch, which watchdog keeps to itself when the watch was removed."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[WatchDescriptor, Callable[[], None]] = {}

    def handle_event(self, event: InotifyEvent) -> None:
        super().handle_event(event)
        if event.is_ignored and (reached := self.ends.pop(event.wd, None)) is not None:
            reached()


class SharedReader:
    """One reader with its thread, and the number of its users; take one by `take_reader`.

    `watch` and `forget` may be called from any thread. A callback gets the events of its own folders.
    """

    def __init__(self, *, every_write: bool) -> None:
        self.every_write = every_write
        self.users = 0
        self._mask = Mask(CHANGES | (InotifyConstants.IN_MODIFY if every_write else 0))
        self._barriers = Lock()  # the system has one watch for a place; each barrier needs its own
        self._reader = _Reader()
        self._reader.start()

    def watch(self, place: bytes, callback: WatchCallback) -> tuple[WatchDescriptor, CallbackId]:
        """Call back for the events of a folder; return the marks to forget that by. Raises `OSError`."""
        registration = CallbackId(next(_numbers))
        return self._reader.add_callback(place, self._mask, callback, registration), registration

    def forget(self, marks: list[tuple[WatchDescriptor, CallbackId]]) -> None:
        """Call back for some folders no more."""
        self._reader.remove_callbacks(marks)

    def add_barrier(self, reached: Callable[[], None], callback: WatchCallback) -> None:
        """Call `reached` in the thread, behind all events that the system has queued by now. Raises `OSError`.

        The barrier is the event by which the system tells that a watch was removed; `callback` is the caller.
        """
        with self._barriers:
            registration = CallbackId(next(_numbers))
            watch = self._reader.add_callback(BARRIER_PLACE, InotifyConstants.IN_DELETE_SELF, callback, registration)
            self._reader.ends[watch] = reached
            self._reader.remove_callbacks([(watch, registration)])
        if watch < 0:  # watchdog's answer for a place without permission
            raise OSError(errno.EACCES, f"{os.devnull} cannot be watched")

    def stop(self) -> None:
        """End the thread; callbacks that are left hear that their folders are not watched any more."""
        self._reader.stop()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._reader.join()


def take_reader(*, every_write: bool, instead_of: SharedReader | None = None) -> SharedReader:
    """Return the reader of the process, for one more user; `every_write` tells of more than closed files.

    A reader that lost events is replaced: nobody takes it any more. Raises `OSError`.
    """
    with _lock:
        reader = _readers.get(every_write)
        if reader is None or reader is instead_of:
            _readers.pop(every_write, None)
            reader = _readers[every_write] = SharedReader(every_write=every_write)
        reader.users += 1
        return reader


def end_use(reader: SharedReader, marks: list[tuple[WatchDescriptor, CallbackId]], *, wait: bool = False) -> None:
    """Use a reader no more: stop it, or let the others have it; `wait` for the thread unless it is the current one."""
    with _lock:
        reader.users -= 1
        is_used = reader.users > 0
        if not is_used and _readers.get(reader.every_write) is reader:
            del _readers[reader.every_write]
    if is_used:
        reader.forget(marks)
        return
    reader.stop()
    if wait:
        reader.join()


def _begin_in_fork() -> None:
    """Leave the readers to the parent: their threads are there alone, and so are their events."""
    global _lock
    _lock = Lock()
    _readers.clear()


os.register_at_fork(after_in_child=_begin_in_fork)

_lock = Lock()
_numbers = count(1)
_readers: dict[bool, SharedReader] = {}
