"""What other systems than Linux say of a folder, by way of watchdog: this path may have changed."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from watchdog.events import (
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
    import asyncio
    from collections.abc import Callable

    from watchdog.observers.api import BaseObserver

EVENTS: list[type[FileSystemEvent]] = [
    *(DirCreatedEvent, DirDeletedEvent, DirMovedEvent),
    *(FileCreatedEvent, FileDeletedEvent, FileMovedEvent, FileModifiedEvent),
]
BURST = 4096
"""Events after which the whole folder is looked at: the system drops some, without a word, when they come too fast."""


class FolderObserver(FileSystemEventHandler):
    """Calls `notice(paths)`, on the event loop that starts it, with paths relative to `base` that may have changed.

    A folder's path ends in a slash; '' is `base` itself, and means that everything may have changed.
    """

    def __init__(self, base: str, notice: Callable[[list[str]], None], *, recursive: bool) -> None:
        self._base, self._notice, self._recursive = base, notice, recursive
        self._loop: asyncio.AbstractEventLoop | None = None
        self._observer: BaseObserver | None = None
        self._lock, self._stopped = Lock(), False
        self._events = 0

    async def start(self) -> None:
        """Watch; when this returns nothing is missed any more. Raises `OSError`."""
        import asyncio

        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        """End the threads, and wait for them; also one that is being started, or could not be."""
        import asyncio

        await asyncio.to_thread(self._stop)

    def enter(self, folder: str) -> None:
        """Do nothing: folders are watched with the one that holds them."""

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

    def dispatch(self, event: FileSystemEvent) -> None:
        """Turn one event into the paths that may have changed."""
        self._events += 1
        paths = [
            self._relative(os.fsdecode(path), folder=event.is_directory)
            for path in (event.src_path, event.dest_path)
            if path
        ]
        if self._events % BURST == 0:
            paths.append("")
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._notice, paths)

    def _relative(self, path: str, *, folder: bool) -> str:
        below = path.removeprefix(self._base.rstrip(os.sep) + os.sep)
        if below == path:
            return ""
        return below.replace(os.sep, "/") + ("/" if folder else "")
