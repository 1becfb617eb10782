"""What the operating system says of a folder, in as few words as possible: this path may have changed."""

from __future__ import annotations

import os
import stat
import sys
import warnings
from threading import Lock
from typing import TYPE_CHECKING

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.observers.api import BaseObserver

LINUX = sys.platform == "linux"
EVENTS: list[type[FileSystemEvent]] = [
    *(DirCreatedEvent, DirDeletedEvent, DirMovedEvent),
    *(FileCreatedEvent, FileDeletedEvent, FileMovedEvent),
    FileClosedEvent if LINUX else FileModifiedEvent,
]
"""Linux says when a file that was written is closed: one save, one event, with its content complete."""
BURST = 4096
"""Events after which the whole folder is looked at: the kernel drops what goes beyond its queue (16,384 by default)."""


class FolderObserver(FileSystemEventHandler):
    """Calls `notice(path)`, in a thread of its own, for each path relative to `base` that may have changed.

    A folder's path ends in a slash; '' is `base` itself, and means that everything may have changed.
    """

    def __init__(self, base: str, notice: Callable[[str], None], *, recursive: bool) -> None:
        self._base, self._notice, self._recursive = base, notice, recursive
        self._observer: BaseObserver | None = None
        self._lock, self._stopped = Lock(), False
        self._events = 0

    def start(self) -> None:
        """Watch; when this returns nothing is missed any more. Raises `OSError`."""
        with self._lock:
            if self._stopped:
                return
            # a folder that is made in a new folder is watched twice, and watchdog warns of its own doing
            warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning, r"watchdog\.")
            self._observer = _new_observer()
            self._observer.schedule(self, self._base, recursive=self._recursive, event_filter=EVENTS)
            self._observer.start()
            if LINUX and self._recursive:
                self._probe_limit()

    def stop(self) -> None:
        """End the threads, and wait for them; also one that is being started, or could not be."""
        with self._lock:
            self._stopped = True
            if self._observer is not None:
                _end(self._observer)
                self._observer = None

    def _probe_limit(self) -> None:
        """Raise `OSError` if no folder more can be watched: then some below were passed over without a word."""
        probe = _new_observer()
        try:
            probe.schedule(FileSystemEventHandler(), self._base, event_filter=[DirMovedEvent])
            probe.start()
        finally:
            _end(probe)

    def dispatch(self, event: FileSystemEvent) -> None:
        """Turn one event into the paths that may have changed."""
        self._events += 1
        if self._events % BURST == 0:
            self._notice("")
        if LINUX and isinstance(event, FileCreatedEvent) and _will_be_closed(event.src_path):
            return
        for path in (event.src_path, event.dest_path):
            if path:
                self._notice(self._relative(os.fsdecode(path), folder=event.is_directory))

    def _relative(self, path: str, *, folder: bool) -> str:
        below = path.removeprefix(self._base.rstrip(os.sep) + os.sep)
        if below == path:
            return ""
        return below.replace(os.sep, "/") + ("/" if folder else "")


def _new_observer() -> BaseObserver:
    if LINUX:
        from watchdog.observers.inotify import InotifyObserver

        # with full events a rename into the folder is not called a creation, which is then always followed by a close
        return InotifyObserver(generate_full_events=True)
    from watchdog.observers import Observer

    return Observer()


def _end(observer: BaseObserver) -> None:
    observer.stop()
    if observer.is_alive():
        observer.join()


def _will_be_closed(path: bytes | str) -> bool:
    """Return whether a created file was opened for writing: links are complete when they are created."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
