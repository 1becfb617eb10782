"""Many watchers in one process share a reader of the system's queue."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_trigger_file_watcher.change_detector import LINUX

if LINUX:
    from watchdog.observers.inotify_c import InotifyFD

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not LINUX, reason="inotify is Linux's")
WATCHERS = 40


def count_instances() -> int:
    """Return how many instances of inotify this process has."""
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - one call
    return sum(str(link.readlink()) == "anon_inode:inotify" for link in links if link.is_symlink())


async def test_watchers_of_many_folders_take_one_instance_and_one_thread(
    tmp_path: Path, watching: Callable[..., Any]
) -> None:
    before, threads = count_instances(), threading.active_count()
    async with AsyncExitStack() as stack:
        watchers = []
        for number in range(WATCHERS):
            (tmp_path / str(number)).mkdir()
            watchers.append(await stack.enter_async_context(watching(tmp_path / str(number))))
        readers = [thread for thread in threading.enumerate() if isinstance(thread, InotifyFD)]
        assert (count_instances() - before, len(readers)) == (1, 1)
        for number, watcher in enumerate(watchers):
            (watcher.folder / f"{number}.txt").write_text("x")
        assert [await each.next_change() for each in watchers] == [("created", f"{n}.txt") for n in range(WATCHERS)]
    assert count_instances() == before
    assert threading.active_count() <= threads + 8  # those of asyncio


async def test_watchers_of_one_folder_and_of_folders_in_each_other_hear_everything(
    tmp_path: Path, watching: Callable[..., Any]
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    async with watching(tmp_path) as outer, watching(inner) as first:
        async with watching(inner) as second, watching(inner, debounce_ms=0) as prompt:
            (inner / "a.txt").write_text("x")
            assert [(await each.next_change())[1] for each in (outer, first, second, prompt)] == [
                "inner/a.txt",
                *["a.txt"] * 3,
            ]
        (inner / "b.txt").write_text("x")
        assert [(await each.next_change())[1] for each in (outer, first)] == ["inner/b.txt", "b.txt"]


async def test_a_folder_that_one_watcher_watches_itself_and_another_below_its_own_is_missed_when_it_goes(
    tmp_path: Path, watching: Callable[..., Any]
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.txt").write_text("x")
    async with watching(inner) as own, watching(tmp_path) as outer:
        await asyncio.sleep(0.1)
        inner.rename(tmp_path / "elsewhere")
        assert await own.next_change() == ("deleted", "a.txt")
        found = sorted([await outer.next_change(), await outer.next_change()])
        assert found == [("created", "elsewhere/a.txt"), ("deleted", "inner/a.txt")]


async def test_lost_events_of_a_shared_reader_are_made_up_for_in_every_watcher(
    tmp_path: Path, watching: Callable[..., Any]
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    async with watching(folders[0]) as one, watching(folders[1]) as two:
        before = count_instances()
        with one.trigger._detector._observer._lock:  # the reader's callback waits for it
            (folders[0] / "first.txt").write_text("x")
            for number in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 2 + 5_000):
                (folders[0] / f"{number % 2}.tmp").touch()
                (folders[0] / f"{number % 2}.tmp").unlink()
            (folders[1] / "last.txt").write_text("x")
        assert await one.next_change() == ("created", "first.txt")
        assert await two.next_change() == ("created", "last.txt")
        for watcher in (one, two):
            assert await watcher.changes() == []
        assert count_instances() == before


async def test_a_fork_of_the_process_watches_by_a_reader_of_its_own(
    tmp_path: Path, watching: Callable[..., Any]
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()

    async def watch_in_fork() -> None:
        async with watching(inner) as watcher:
            (inner / "a.txt").write_text("x")
            await watcher.next_change()

    async with watching(tmp_path) as outer:
        fork = os.fork()
        if fork == 0:
            try:
                asyncio.run(asyncio.wait_for(watch_in_fork(), 5))
                os._exit(0)
            finally:
                os._exit(1)
        assert (await asyncio.to_thread(os.waitpid, fork, 0))[1] == 0
        assert (await outer.next_change())[1] == "inner/a.txt"
