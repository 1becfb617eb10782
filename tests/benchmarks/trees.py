"""A large tree: until it is watched, beside the least that this takes, its state, and one event of it."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import sys
import zlib
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core.triggers import TriggerContext
from amplifier_storage_sqlite import open_sqlite
from amplifier_trigger_file_watcher import FileChangeTrigger

from .measure import Row, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_storage_sqlite.store import SqliteStore

    from .measure import Sample

LINUX = sys.platform == "linux"
CHANGES = 0x3CA
"""Written, closed, moved, created, deleted."""
FOLDERS, FILES = 5_000, 10
AT_MOST = 2.0  # goal: times scan and inotify
EVENT_GROWTH = 1.5  # goal: times the event of a small tree
SMALL_TREE, EVENTS = 50, 101
ROUNDS = 5
YOUNG = 2.1
"""Seconds for which the watcher reads a file anew, as it may be written twice within one time stamp."""


async def rows() -> AsyncIterator[Row]:
    """Make a tree, and watch it again and again."""
    with TemporaryDirectory(prefix="amplifier-bench-") as root:
        await asyncio.to_thread(_make, Path(root))
        await asyncio.sleep(YOUNG)
        watched = Watched(Path(root))
        if LINUX:
            ours, limit = await in_turns(watched.first, _least(root), rounds=ROUNDS)
            yield Row("50,000 files in 5,000 folders watched / scan and inotify", ours, limit, at_most_ratio=AT_MOST)
        await watched.first(reads=True)
        state, least = len(json.dumps(watched.state)), await asyncio.to_thread(_least_state, root)
        yield Row("  their state, as it is stored once / as compressed JSON", state, least, at_most_ratio=1.0, unit="B")
        large, small = await _stored_events(Path(root))
    yield Row("  a stored event of them / of 50 files", large, small, at_most_ratio=EVENT_GROWTH)


class Watched:
    """A tree that is watched for the first time, as often as asked, and what was saved last."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.state: Mapping[str, Any] = {}
        self._saved = 0

    async def first(self, *, reads: bool = False) -> float:
        """Return the seconds until nothing is missed any more; with `reads`, let it read all files then."""
        trigger = FileChangeTrigger()
        trigger.bind(TriggerContext("bench/trees#1", working_dir=self._root, saver=self._save))
        trigger.configure({})
        self._saved = 0
        async with asyncio.TaskGroup() as group:
            start = perf_counter()
            group.create_task(_follow(trigger))
            await trigger.ready()
            taken = perf_counter() - start
            while reads and self._saved < 2:  # once armed, and once all files were read
                await asyncio.sleep(0.05)
            await trigger.stop()
        return taken

    async def _save(self, state: Mapping[str, Any], *, merge: bool = False) -> None:
        self.state, self._saved = state, self._saved + 1


async def _stored_events(tree: Path) -> tuple[float, float]:
    """Return the seconds from a change in a large and in a small tree to its stored event."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        small = Path(folder) / "small"
        small.mkdir()
        for number in range(SMALL_TREE):
            (small / f"file{number}.py").write_text("print()\n")
        store = open_sqlite({"path": Path(folder) / "store.db"})
        both = [StoredWatch(tree, tree / "package00" / "module00", store), StoredWatch(small, small, store)]
        async with asyncio.TaskGroup() as group:
            for each in both:
                await each.start(group)
            large, least = await in_turns(*(each.change for each in both), rounds=EVENTS)
            for each in both:
                await each.trigger.stop()
        await store.close()
    return large, least


class StoredWatch:
    """A tree whose events are stored, without debounce; its files in `folder` change one after the other."""

    def __init__(self, watched: Path, folder: Path, store: SqliteStore) -> None:
        self.watched, self._folder = watched, folder
        self.trigger, self._store = FileChangeTrigger(), store
        self._stored, self._saved, self._numbers = asyncio.Event(), asyncio.Semaphore(0), itertools.count()

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Return when all files were read, and the store knows them."""
        self.trigger.bind(TriggerContext("bench/trees#1", working_dir=self.watched, saver=self._save))
        self.trigger.configure({"debounce_ms": 0})
        group.create_task(self._follow())
        for _ in range(2):  # once armed, and once all files were read
            await self._saved.acquire()

    async def change(self) -> float:
        """Write a file; return the seconds until its event is stored."""
        number = next(self._numbers)
        self._stored.clear()
        start = perf_counter()
        (self._folder / f"file{number % FILES}.py").write_text(f"print('{number}')\n")
        await self._stored.wait()
        return perf_counter() - start

    async def _follow(self) -> None:
        async for event in self.trigger.watch():
            await self._store.enqueue(str(self.watched), "bench/trees", "bench/trees#1", event)
            self._stored.set()

    async def _save(self, state: Mapping[str, Any], *, merge: bool = False) -> None:
        await self._store.save_trigger_state(str(self.watched), "bench/trees#1", state, merge=merge)
        self._saved.release()


async def _follow(trigger: FileChangeTrigger) -> None:
    async for _ in trigger.watch():
        pass


def _make(root: Path) -> None:
    for number in range(FOLDERS):
        folder = root / f"package{number // 100:02}" / f"module{number % 100:02}"
        folder.mkdir(parents=True)
        for name in range(FILES):
            (folder / f"file{name}.py").write_text(f"print({number}, {name})\n" * 20)


def _least(root: str) -> Sample:
    """Return a sample that watches each folder by the system call alone, and asks for the state of each file."""
    libc = ctypes.CDLL(None, use_errno=True)

    async def sample() -> float:
        descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            start = perf_counter()
            _scan(libc, descriptor, root)
            return perf_counter() - start
        finally:
            os.close(descriptor)

    return sample


def _scan(libc: ctypes.CDLL, descriptor: int, root: str) -> None:
    known: dict[str, os.stat_result] = {}
    folders = [root]
    while folders:
        folder = folders.pop()
        if libc.inotify_add_watch(descriptor, os.fsencode(folder), CHANGES) < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    known[entry.path] = entry.stat()


def _least_state(root: str) -> int:
    """Return the bytes of the same facts as a table in JSON, compressed, as text."""
    table = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            status = path.stat()
            digest = sha256(path.read_bytes()).hexdigest()[:16]
            facts = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns, digest)
            table[path.relative_to(root).as_posix()] = facts
    return len(b64encode(zlib.compress(json.dumps(table).encode(), level=1)))
