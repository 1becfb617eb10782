"""What is brought to its end with the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from amplifier_core import process_ends
from amplifier_core.process_ends import add_ending, at_process_end, finish_endings, run_process_ends


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(process_ends, "_calls", [])
    return []


def test_calls_are_made_once_the_last_one_first_also_after_one_that_fails(calls: list[str]) -> None:
    at_process_end(lambda: calls.append("first"))
    at_process_end(lambda: 1 / 0)
    at_process_end(lambda: calls.append("last"))
    run_process_ends()
    run_process_ends()
    assert calls == ["last", "first"]


def test_they_are_made_at_the_end_of_a_program() -> None:
    program = "from amplifier_core.process_ends import at_process_end as end; end(lambda: print('ended'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "ended\n"


async def test_a_loop_waits_for_what_ends_by_itself(calls: list[str]) -> None:
    async def end() -> None:
        await asyncio.sleep(0)
        calls.append("ended")

    await finish_endings()
    task = asyncio.create_task(end())
    add_ending(task)
    await finish_endings()
    assert calls == ["ended"]
    assert process_ends._endings == set()


async def test_it_waits_for_nothing_of_another_loop() -> None:
    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(asyncio.sleep(3600))
        add_ending(task)
        return task

    ready, done = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def elsewhere() -> None:
        task = await begin()
        loop.call_soon_threadsafe(ready.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(done.wait(), loop))
        task.cancel()

    other = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await ready.wait()
    await finish_endings()
    done.set()
    await other
