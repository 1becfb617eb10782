"""Hear of single paths outside of a tree on Linux: links on the way to it, and .gitignore files above."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from watchdog.observers.inotify_c import WatchCallback

from .inotify_readers import SharedReader, end_use, take_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from watchdog.observers.inotify_c import CallbackId, InotifyEvent, WatchDescriptor


class InotifyPlaces(WatchCallback):
    """Calls `told` on the event loop when one of some paths is made, written, moved or removed.

    It watches their folders, not themselves: most programs put a new file or link in place of the old one. A folder
    without permission is passed over: the trigger looks now and then as well.
    """

    def __init__(self, paths: Iterable[str], told: Callable[[], None], *, every_write: bool) -> None:
        self._paths, self._told, self._every_write = paths, told, every_write
        self._loop = asyncio.get_running_loop()
        self._reader: SharedReader | None = None
        self._marks: dict[CallbackId, WatchDescriptor] = {}
        self._names: dict[WatchDescriptor, set[bytes]] = {}

    def start(self) -> None:
        """Begin to watch. Raises `OSError` without a reader."""
        names: dict[str, set[bytes]] = {}
        for path in self._paths:
            folder, name = os.path.split(path)
            names.setdefault(os.path.realpath(folder), set()).add(os.fsencode(name))
        if not names:
            return
        self._reader = take_reader(every_write=self._every_write)
        for folder, wanted in names.items():
            with suppress(OSError):
                watch, mark = self._reader.watch(os.fsencode(folder), self)
                self._marks[mark] = watch
                self._names.setdefault(watch, set()).update(wanted)  # two real paths of one folder have one watch

    async def stop(self) -> None:
        """Watch no longer."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await asyncio.to_thread(end_use, reader, [(watch, mark) for mark, watch in self._marks.items()], wait=True)

    def on_event(self, event: InotifyEvent) -> None:
        """Tell of a path; called by watchdog in the reader's thread, as are the next two."""
        if event.name in self._names.get(event.wd, ()):
            self._tell()

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """Forget a removed folder."""
        for mark in [mark for mark, watch in list(self._marks.items()) if watch == wd]:
            self._marks.pop(mark, None)
        self._names.pop(wd, None)

    def on_queue_overflow(self) -> None:
        """Tell, as events were lost."""
        self._tell()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._told)
