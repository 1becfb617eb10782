"""What it costs to watch one of the trees in build/bench-trees, by the number of its files.

`arm_<files>` arms a watcher anew. `keep_<files>` arms one and lets it read everything; the others ask about that one.
`bare` watches no file: a loop with a descriptor of inotify, which is asked for `idle` too.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from answering import answer, resident

from amplifier_core.triggers import TriggerContext
from amplifier_storage_sqlite import open_sqlite
from amplifier_trigger_file_watcher import FileChangeTrigger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

TREES = Path(__file__).parents[3] / "build" / "bench-trees"
SIZES = (10, 400, 15_000, 500_000)
CHANGES, IDLE = 10, 1.0
"""Events of one measurement, and seconds of idleness."""


class Kept:
    """A watcher whose events are stored."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = Path(tempfile.mkdtemp(prefix="amplifier-bench-"))
        self.store = open_sqlite({"path": self.folder / "store.db"})
        self.trigger, self.numbers = FileChangeTrigger(), count()
        self.stored, self.saved, self.state = asyncio.Event(), asyncio.Semaphore(0), dict[str, Any]()
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> float:
        """Return the bytes that the process has grown by when all files were read."""
        gc.collect()
        before = resident()
        self.trigger.bind(TriggerContext("bench/trees#1", working_dir=self.root, saver=self.save))
        self.trigger.configure({"debounce_ms": 0})
        self.task = asyncio.create_task(self.follow())
        for _ in range(2):  # once armed, and once all files were read
            await self.saved.acquire()
        gc.collect()
        return resident() - before

    async def save(self, state: Mapping[str, Any], *, merge: bool = False) -> None:
        await self.store.save_trigger_state("/p", "bench/trees#1", state, merge=merge)
        self.state = self.state if merge else dict(state)
        self.saved.release()

    async def follow(self) -> None:
        async for event in self.trigger.watch():
            await self.store.enqueue("/p", "bench/trees", "bench/trees#1", event)
            self.stored.set()

    async def write(self, file: Path) -> None:
        """Write a file, and wait until its event is stored."""
        self.stored.clear()
        file.write_text(f"print('{next(self.numbers)}')\n")
        await self.stored.wait()

    def size(self) -> int:
        with closing(sqlite3.connect(self.store.path)) as db:
            [(pages,)] = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return int(pages)


kept: list[Kept] = []
readers: list[int] = []


async def arm(files: int) -> float:
    """Return the processor time until nothing is missed any more."""
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("bench/trees#1", working_dir=TREES / str(files)))
    trigger.configure({})

    async def follow() -> None:
        async for _ in trigger.watch():
            pass

    start = process_time()
    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await trigger.ready()
        taken = process_time() - start
        await trigger.stop()
    return taken


async def keep(files: int) -> float:
    kept.append(Kept(TREES / str(files)))
    return await kept[0].start()


async def change() -> float:
    """Return the processor time from a written file to its stored event."""
    start = process_time()
    for number in range(CHANGES):
        await kept[0].write(kept[0].root / "area00" / "part00" / f"file{number:03}.py")
    return (process_time() - start) / CHANGES


async def folder() -> float:
    """Return the processor time from a new folder with a file to the stored event; the folder is gone afterwards."""
    made = kept[0].root / "area00" / "made"
    start = process_time()
    made.mkdir()
    await kept[0].write(made / "new.py")
    taken = process_time() - start
    kept[0].stored.clear()
    shutil.rmtree(made)
    await kept[0].stored.wait()
    return taken


async def event_bytes() -> float:
    """Return the room that one more event takes in the store."""
    before = kept[0].size()
    for _ in range(10):
        await change()
    return (kept[0].size() - before) / (10 * CHANGES)


async def json_bytes() -> float:
    """Return the size of an event as JSON."""
    [delivery] = await kept[0].store.deliveries(limit=1)
    event = delivery.event
    return len(json.dumps({name: getattr(event, name) for name in event.__dataclass_fields__}, default=str))


async def state_bytes() -> float:
    return len(json.dumps(kept[0].state))


async def bare() -> float:
    """Watch one folder by the system calls alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    libc.inotify_add_watch(descriptor, os.fsencode(TREES), 0x8)
    asyncio.get_running_loop().add_reader(descriptor, partial(os.read, descriptor, 4096))
    readers.append(descriptor)
    return 0.0


async def idle() -> float:
    """Return the processor time of a second in which nothing happens."""
    start = process_time()
    await asyncio.sleep(IDLE)
    return (process_time() - start) / IDLE


async def end() -> float:
    for each in kept:
        await each.trigger.stop()
        assert each.task is not None
        await each.task
        await each.store.close()
        shutil.rmtree(each.folder)
    return 0.0


questions: dict[str, Callable[[], Awaitable[float]]] = {f"arm_{files}": partial(arm, files) for files in SIZES}
questions |= {f"keep_{files}": partial(keep, files) for files in SIZES}
plain = (change, folder, event_bytes, json_bytes, state_bytes, bare, idle, end)
answer(**questions, **{each.__name__: each for each in plain})
