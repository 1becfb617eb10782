"""A coroutine that is run up to its first wait goes on as if it had been awaited from the beginning."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amplifier_core.eager import Waiting, start


async def give(value: Any) -> Any:
    return value


async def fail() -> None:
    raise LookupError("gone")


async def test_what_never_waits_is_over_at_once() -> None:
    assert start(give(1)) == 1
    with pytest.raises(LookupError, match="gone"):
        start(fail())


@pytest.mark.parametrize(
    "wait", [lambda: asyncio.sleep(0), lambda: asyncio.sleep(0.001), lambda: asyncio.to_thread(int)]
)
async def test_what_waits_goes_on_in_the_same_task(wait: Callable[[], Awaitable[Any]]) -> None:
    async def work() -> tuple[object, object]:
        before = asyncio.current_task()
        await wait()
        await wait()
        return before, asyncio.current_task()

    waiting = start(work())
    assert isinstance(waiting, Waiting)
    assert await waiting == (asyncio.current_task(), asyncio.current_task())


async def test_an_error_after_a_wait_and_one_that_is_awaited_arrive() -> None:
    async def later() -> None:
        await asyncio.sleep(0)
        await fail()

    goes_on = threading.Event()

    def fail_in_thread() -> int:
        goes_on.wait()
        return int("x")

    async def handle() -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(goes_on.set)
        try:
            await loop.run_in_executor(None, fail_in_thread)
        except ValueError:
            return "handled"
        return "not reached"

    with pytest.raises(LookupError, match="gone"):
        await start(later())  # type: ignore[misc]  # it waits
    assert await start(handle()) == "handled"  # type: ignore[misc]  # it waits


async def test_a_time_limit_around_it_cancels_it_where_it_waits() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(asyncio.current_task())

    waiting = start(work())
    assert isinstance(waiting, Waiting)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await waiting
    assert ended == [asyncio.current_task()]


async def test_what_is_awaited_by_a_method_of_its_own_is_run_like_a_coroutine() -> None:
    class Own:
        def __init__(self, wait: Awaitable[Any]) -> None:
            self.wait = wait

        def __await__(self) -> Any:
            return self.wait.__await__()

    assert start(Own(give(1))) == 1
    waiting = start(Own(asyncio.sleep(0, 2)))
    assert isinstance(waiting, Waiting)
    assert await waiting == 2
