"""Another thread calls functions in an event loop: each once, in their order, whatever the loop can watch."""

from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_core.waking import call_in, watch_calls
from amplifier_storage_sqlite import open_sqlite


class WithoutFiles(asyncio.SelectorEventLoop):
    """A loop that watches no files, as the proactor loop of Windows."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, WithoutFiles])
def test_calls_of_other_threads_run_in_the_loop_in_their_order(kind: type[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=kind) as runner:
        loop, called = runner.get_loop(), list[tuple[int, int]]()
        done = asyncio.Event()

        async def wait() -> None:
            watch_calls(loop)
            watch_calls(loop)
            thread = threading.Thread(target=call_all)
            thread.start()
            await asyncio.wait_for(done.wait(), 60)
            thread.join()

        def call_all() -> None:
            for number in range(1000):
                call_in(loop, partial(note, number))
            call_in(loop, lambda: call_in(loop, done.set))

        def note(number: int) -> None:
            called.append((number, threading.get_ident()))

        runner.run(wait())
    assert called == [(number, threading.get_ident()) for number in range(1000)]


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, WithoutFiles])
def test_a_store_is_used_by_one_loop_after_the_other(kind: type[asyncio.AbstractEventLoop], path: Path) -> None:
    store = open_sqlite({"path": path})

    async def use(number: int) -> int:
        await store.create(SessionRecord(f"s{number}"))
        return await store.append(f"s{number}", [{}], at=0)

    for number in range(20):
        with asyncio.Runner(loop_factory=kind) as runner:
            assert runner.run(use(number)) == 1
    with asyncio.Runner(loop_factory=kind) as runner:
        assert len(runner.run(store.sessions())) == 20
        runner.run(store.close())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts the open files of this process")
def test_a_loop_that_is_gone_leaves_no_open_file() -> None:
    async def watch() -> None:
        watch_calls(asyncio.get_running_loop())

    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        asyncio.run(watch())
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


async def test_a_call_into_a_closed_loop_is_dropped_or_refused() -> None:
    loop = asyncio.SelectorEventLoop()
    watch_calls(loop)
    loop.close()
    call_in(loop, lambda: pytest.fail("the loop is closed"))
