"""Whoever waits for a task learns its failure, and ends it first when cancelled."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from amplifier_foundation.background.tasks import see_through


async def test_the_failure_of_a_task_is_returned() -> None:
    async def fail() -> None:
        raise ValueError("no")

    failed, cancelled = asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(60))
    cancelled.cancel()
    assert str(await see_through(failed)) == "no"
    assert await see_through(cancelled) is None  # type: ignore[arg-type]  # it returns nothing
    assert await see_through(asyncio.create_task(asyncio.sleep(0))) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_a_cancelled_wait_ends_the_task_first_and_leaves_no_failure_behind(cancellations: int) -> None:
    seen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))

    async def end_slowly() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            seen.append("ended")
            raise ValueError("it could not be stored")

    waiting = asyncio.create_task(see_through(asyncio.create_task(end_slowly())))
    await asyncio.sleep(0.01)
    for _ in range(cancellations):
        waiting.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gc.collect()
    assert seen == ["ended"]
