"""From a file that was written to the event that says so, beside the operating system's own word and watchdog's."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from watchdog.events import FileClosedEvent, FileModifiedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from amplifier_core.triggers import TriggerContext
from amplifier_trigger_file_watcher import FileChangeTrigger

from . import trees
from .environment import peers_python
from .measure import Row, in_turns
from .worker import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from .measure import Sample

LINUX = sys.platform == "linux"
IN_CLOSE_WRITE = 0x8
AT_MOST = 1.3  # goal: times watchdog alone, without debounce
ROUNDS = 101
PATIENCE = 5.0
"""Seconds."""


async def changes() -> AsyncIterator[Row]:
    """Change one file at a time in a folder of each watcher, and wait until it has told."""
    with TemporaryDirectory(prefix="amplifier-bench-") as root:
        folders = [Path(root) / name for name in ("ours", "watchdog", "inotify")]
        for folder in folders:
            folder.mkdir()
        told = [asyncio.Event() for _ in folders]
        samples = [_change(folder, event) for folder, event in zip(folders, told, strict=True)]
        async with _trigger(folders[0], told[0].set):
            with _watchdog(folders[1], told[1].set), _inotify(folders[2], told[2].set):
                ours, watchdog, *inotify = await in_turns(*samples[: 2 + LINUX], rounds=ROUNDS)
    yield Row("file change to event, no debounce / watchdog alone", ours, watchdog, at_most_ratio=AT_MOST)
    if inotify:
        yield Row("file change to event, no debounce / raw inotify", ours, inotify[0])


async def peer() -> AsyncIterator[Row]:
    """Change a file of ours and of watchfiles, each in a folder of its own."""
    python = peers_python()
    if python is None:
        return
    with TemporaryDirectory(prefix="amplifier-bench-") as root:
        told = asyncio.Event()
        async with _trigger(Path(root), told.set), worker(python, "files_watchfiles") as process:
            ours, theirs = await in_turns(_change(Path(root), told), process.sample("change"), rounds=31)
            await process.measure("end")
    yield Row("file change to event, no debounce / watchfiles", ours, theirs)


PARTS = (changes, peer, trees.rows)


def _change(folder: Path, told: asyncio.Event) -> Sample:
    numbers = count()

    async def sample() -> float:
        told.clear()
        start = perf_counter()
        (folder / "file.txt").write_text(f"change {next(numbers)}")
        async with asyncio.timeout(PATIENCE):
            await told.wait()
        return perf_counter() - start

    return sample


@asynccontextmanager
async def _trigger(folder: Path, tell: Callable[[], None]) -> AsyncIterator[None]:
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("bench/files#1", working_dir=folder))
    trigger.configure({"debounce_ms": 0})

    async def follow() -> None:
        async for _ in trigger.watch():
            tell()

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await trigger.ready()
        try:
            yield
        finally:
            await trigger.stop()


@contextmanager
def _watchdog(folder: Path, tell: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            loop.call_soon_threadsafe(tell)

    observer = Observer()
    observer.schedule(Handler(), str(folder), event_filter=[FileClosedEvent if LINUX else FileModifiedEvent])
    observer.start()
    try:
        yield
    finally:
        observer.stop()
        observer.join()


@contextmanager
def _inotify(folder: Path, tell: Callable[[], None]) -> Iterator[None]:
    """Watch by the system calls alone, on the event loop; where there are none, not at all."""
    if not LINUX:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(folder), IN_CLOSE_WRITE) < 0:
        raise OSError(ctypes.get_errno(), "inotify cannot be used")

    def read() -> None:
        os.read(descriptor, 4096)
        tell()

    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
