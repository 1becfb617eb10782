"""Waiting by a clock: until a time, or until something happens before it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from amplifier_core.clock import Clock, SystemClock, sleep_until, wait_for
from amplifier_core.testing import VirtualClock


async def test_a_clock_that_moves_before_the_wait_begins_makes_it_no_longer() -> None:
    clock = VirtualClock()
    waiting = asyncio.create_task(sleep_until(clock, clock.now() + timedelta(seconds=2)))
    await clock.advance(0)  # nothing else waits: the task begins within this
    late = asyncio.create_task(sleep_until(clock, clock.now() + timedelta(seconds=2)))
    clock._elapsed += 1.5
    await asyncio.sleep(0)
    await clock.advance(0.5)
    await asyncio.wait_for(asyncio.gather(waiting, late), 5)


async def test_a_time_that_has_come_is_not_waited_for() -> None:
    clock: Clock = SystemClock()
    await asyncio.wait_for(sleep_until(clock, clock.now() - timedelta(days=1)), 5)


async def test_whichever_comes_first_ends_the_wait_for_an_event() -> None:
    clock, event = VirtualClock(), asyncio.Event()
    due = clock.now() + timedelta(seconds=2)
    waiting = asyncio.create_task(wait_for(clock, event, due))
    await clock.until_sleeping()
    await clock.advance(2)
    assert await waiting is False
    waiting = asyncio.create_task(wait_for(clock, event, clock.now() + timedelta(seconds=2)))
    await clock.until_sleeping()
    event.set()
    assert await waiting is True
    assert clock.sleeping == 0
