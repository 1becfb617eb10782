"""Hear of paths that may have changed from the operating system, through watchdog.

watchdog calls from a thread of its own. `PathNotices` brings the paths to the event loop, many at once.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from watchdog.events import (
    EVENT_TYPE_CREATED,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from watchdog.observers.api import BaseObserver

    Notice = Callable[[dict[str, float]], None]

EVENTS: list[type[FileSystemEvent]] = [
    *(DirCreatedEvent, DirDeletedEvent, DirMovedEvent),
    *(FileCreatedEvent, FileDeletedEvent, FileMovedEvent, FileModifiedEvent),
]
"""The event filter: without one, watchdog 7.1 also hears itself open 5,000 folders, and never comes to an end."""
BURST = 4096
"""Events until the next look at the whole folder: some systems drop events of a burst without a word."""


class PathNotices:
    """Paths on their way from any thread to `notice(paths)` on the event loop, each once while it waits.

    The value of a path that appeared, which was created or moved here, is a time before which that did not happen; of
    any other it is 0. Times are `time.monotonic()`: the start, and those given to `advance`. The path of a folder ends
    in a slash, and '' is the watched folder itself: everything may have changed.
    """

    def __init__(self, notice: Notice) -> None:
        import asyncio

        self._notice, self._loop = notice, asyncio.get_running_loop()
        self._lock = Lock()
        self._waiting: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._since = time.monotonic()

    def put(self, path: str, *, appeared: bool = False) -> None:
        """Take a path, from any thread."""
        with self._lock:
            is_first = not self._waiting
            held = self._held.pop(path, 0.0)
            self._waiting[path] = self._since if appeared else max(held, self._waiting.get(path, 0.0))
        if is_first:
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._deliver)

    def hold(self, path: str) -> None:
        """Take it that a path appears now, which the next `put` of it tells."""
        with self._lock:
            self._held[path] = self._since

    def advance(self, since: float) -> None:
        """Take it that what is put from now on did not happen before this time."""
        with self._lock:
            self._since = max(self._since, since)

    def _deliver(self) -> None:
        with self._lock:
            paths, self._waiting = self._waiting, {}
        self._notice(paths)


class FolderObserver(FileSystemEventHandler):
    """Watches a folder on macOS, Windows and BSD by the observer that watchdog has for the system."""

    def __init__(self, base: str, notice: Notice, *, recursive: bool) -> None:
        self._base, self._notice, self._recursive = base, notice, recursive
        self._notices: PathNotices | None = None
        self._observer: BaseObserver | None = None
        self._lock, self._stopped = Lock(), False
        self._events = 0

    async def start(self) -> None:
        """Watch; no change is missed after the return. Raises `OSError`."""
        import asyncio

        self._notices = PathNotices(self._notice)
        await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        """End the threads and wait for them, also during `start` or after its failure."""
        import asyncio

        await asyncio.to_thread(self._stop)

    def enter(self, folder: str) -> None:
        """Do nothing: the observer watches all folders below."""

    def add_barrier(self) -> float:
        """Return 0: watchdog's observers do not tell in which order things happened."""
        return 0.0

    def watched_since(self, folders: Iterable[str]) -> float:
        """Return `inf`, for the same reason."""
        return math.inf

    def dispatch(self, event: FileSystemEvent) -> None:
        """Turn one event of watchdog into paths."""
        assert self._notices is not None
        self._events += 1
        for path, appeared in (event.src_path, event.event_type == EVENT_TYPE_CREATED), (event.dest_path, True):
            if path:
                self._notices.put(self._relative(os.fsdecode(path), folder=event.is_directory), appeared=appeared)
        if self._events % BURST == 0:
            self._notices.put("")

    def _start(self) -> None:
        from watchdog.observers import Observer

        with self._lock:
            if self._stopped:
                return
            # a folder that is made in a new folder is watched twice, and watchdog warns of its own doing
            warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning, r"watchdog\.")
            self._observer = Observer()
            self._observer.schedule(self, self._base, recursive=self._recursive, event_filter=EVENTS)
            self._observer.start()

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            observer, self._observer = self._observer, None
            if observer is not None:
                observer.stop()
                if observer.is_alive():
                    observer.join()

    def _relative(self, path: str, *, folder: bool) -> str:
        below = path.removeprefix(self._base.rstrip(os.sep) + os.sep)
        if below == path:
            return ""
        return below.replace(os.sep, "/") + ("/" if folder else "")
