"""Many timers sleep, and one of them watches the clock for all."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from amplifier_trigger_timer.sleeping import LOOK_EVERY, Sleepers

from .conftest import WallClock, running, timer

if TYPE_CHECKING:
    from amplifier_core import TriggerEvent

pytestmark = pytest.mark.slow

TIMERS = 50


class CountingClock(WallClock):
    """Counts how often somebody begins to sleep."""

    sleeps = 0

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        await super().sleep(seconds)


async def run_many(stack: AsyncExitStack, clock: WallClock, **config: object) -> list[list[TriggerEvent]]:
    return [await stack.enter_async_context(running(timer(clock, **config))) for _ in range(TIMERS)]


async def test_idle_timers_wake_once_a_minute_together() -> None:
    clock = CountingClock()
    async with AsyncExitStack() as stack:
        await run_many(stack, clock, interval="10h")
        clock.sleeps = 0
        await clock.advance(100 * LOOK_EVERY)
        assert 100 <= clock.sleeps <= 210  # the keeper, and the one that takes its place


async def test_every_timer_fires_within_a_minute_after_the_clock_was_set() -> None:
    clock = WallClock()
    async with AsyncExitStack() as stack:
        fired = await run_many(stack, clock, cron="0 9 * * *")
        clock.set_by(9 * 3600)
        await clock.advance(LOOK_EVERY)
        assert [len(each) for each in fired] == [1] * TIMERS


async def test_a_slow_clock_that_is_set_right_again_and_again_delays_no_tick() -> None:
    clock = WallClock()
    async with AsyncExitStack() as stack:
        fired = await run_many(stack, clock, cron="0 9 * * *")
        for _ in range(9 * 60 - 20):
            await clock.advance(60 - 0.1)
            clock.set_by(0.1)
        await clock.advance(21 * 60)
        [first, *_] = [each[0] for each in fired]
        late = first.timestamp.timestamp() % 3600
        assert late < 1


async def test_the_watch_passes_on_when_its_timer_stops() -> None:
    clock = WallClock()
    async with AsyncExitStack() as others:
        async with running(timer(clock, interval="5h")):
            fired = await run_many(others, clock, cron="0 9 * * *")
        clock.set_by(9 * 3600)
        await clock.advance(LOOK_EVERY)
        assert [len(each) for each in fired] == [1] * TIMERS


async def test_the_watch_passes_on_when_many_timers_stop_at_once() -> None:
    clock = WallClock()
    async with AsyncExitStack() as others:
        stopping = [timer(clock, interval="5h") for _ in range(TIMERS)]
        tasks = []
        for each in stopping:
            tasks.append(asyncio.ensure_future(anext(each.watch(), None)))
            await each.ready()
        await asyncio.sleep(0)
        fired = await run_many(others, clock, cron="0 9 * * *")
        for each in stopping:
            await each.stop()
        assert await asyncio.gather(*tasks) == [None] * TIMERS
        clock.set_by(9 * 3600)
        await clock.advance(LOOK_EVERY)
        assert [len(each) for each in fired] == [1] * TIMERS


async def test_a_clock_without_timers_is_forgotten() -> None:
    clock = WallClock()
    async with running(timer(clock, interval="1h")):
        kept = weakref.ref(Sleepers.of(clock))
        assert Sleepers.of(clock) is kept()
    await asyncio.sleep(0)
    gc.collect()
    assert kept() is None
