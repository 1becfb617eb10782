"""A large tree: until it is watched, beside the least that this takes, and what it costs while nothing happens."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from amplifier_core.triggers import TriggerContext
from amplifier_trigger_file_watcher import FileChangeTrigger

from .measure import Row, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from .measure import Sample

LINUX = sys.platform == "linux"
CHANGES = 0x3CA
"""Written, closed, moved, created, deleted."""
FOLDERS, FILES = 5_000, 10
AT_MOST = 2.0  # goal: times scan and inotify
IDLE = 0.005  # goal: of a processor, hardly anything
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
        await watched.first(idle=True)
    yield Row("  processor time while nothing happens, of a second", watched.idle, at_most=IDLE)
    yield Row("  their state, as it is stored", len(json.dumps(watched.state)), unit="bytes")


class Watched:
    """A tree that is watched for the first time, as often as asked; what was saved last, and what idling cost."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.state: Mapping[str, Any] = {}
        self.idle = 0.0
        self._saved = 0

    async def first(self, *, idle: bool = False) -> float:
        """Return the seconds until nothing is missed any more."""
        trigger = FileChangeTrigger()
        trigger.bind(TriggerContext("bench/trees#1", working_dir=self._root, saver=self._save))
        trigger.configure({})
        self._saved = 0
        async with asyncio.TaskGroup() as group:
            start = perf_counter()
            group.create_task(_follow(trigger))
            await trigger.ready()
            taken = perf_counter() - start
            if idle:
                await self._measure_idling()
            await trigger.stop()
        return taken

    async def _save(self, state: Mapping[str, Any]) -> None:
        self.state, self._saved = state, self._saved + 1

    async def _measure_idling(self) -> None:
        while self._saved < 2:  # once armed, and once all files were read
            await asyncio.sleep(0.05)
        start = process_time()
        await asyncio.sleep(1)
        self.idle = process_time() - start


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
