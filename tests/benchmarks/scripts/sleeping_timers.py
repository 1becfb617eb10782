"""What timers cost by the number of those that sleep beside: arming more, a tick, idling, memory.

`sleep_<timers>` arms so many and answers with the bytes of one; the others ask about a process with those.
"""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from itertools import count
from time import process_time
from typing import TYPE_CHECKING

from answering import answer, resident

from amplifier_core.clock import SystemClock
from amplifier_core.triggers import TriggerContext
from amplifier_trigger_timer import TimerTrigger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SIZES = (1, 100, 10_000, 100_000)
MORE, TICKS, PERIOD, IDLE = 200, 100, 0.002, 1.0
"""Timers armed in one measurement; ticks of one, and seconds between them; seconds of idleness."""
ENOUGH = 1_000
"""Timers that are weighed at once, at the least: memory comes in pages, and the first ones left some."""

clock, numbers = SystemClock(), count()
running: list[tuple[TimerTrigger, asyncio.Task[int]]] = []


async def follow(trigger: TimerTrigger, ticks: int = 0) -> int:
    """Take the ticks of a timer, and stop it after so many."""
    taken = 0
    async for _ in trigger.watch():
        taken += 1
        if taken == ticks:
            await trigger.stop()
    return taken


async def begin(seconds: float, ticks: int = 0) -> tuple[TimerTrigger, asyncio.Task[int]]:
    trigger = TimerTrigger()
    trigger.bind(TriggerContext(f"bench/timers#{next(numbers)}", clock=clock))
    trigger.configure({"interval_seconds": seconds})
    task = asyncio.create_task(follow(trigger, ticks))
    await trigger.ready()
    return trigger, task


async def sleep(timers: int) -> float:
    """Return the bytes that one of so many timers takes."""
    for trigger, task in [await begin(3600.0) for _ in range(100)]:
        await trigger.stop()  # what the first ones import is no memory of a timer
        await task
    gc.collect()
    before = resident()
    armed = [await begin(3600.0) for _ in range(max(timers, ENOUGH))]
    gc.collect()
    grown = resident() - before
    for trigger, task in armed[timers:]:
        await trigger.stop()
        await task
    running.extend(armed[:timers])
    gc.freeze()  # `answer` collects before each question, which takes seconds with so many
    return grown / len(armed)


async def arm() -> float:
    """Return the processor time for arming one more."""
    start = process_time()
    more = [await begin(3600.0) for _ in range(MORE)]
    taken = process_time() - start
    for trigger, task in more:
        await trigger.stop()
        await task
    return taken / MORE


async def tick() -> float:
    """Return the processor time of one tick of one more timer."""
    _, task = await begin(PERIOD, TICKS)
    start = process_time()
    await task
    return (process_time() - start) / TICKS


async def idle() -> float:
    """Return the processor time of a second in which nothing is due."""
    start = process_time()
    await asyncio.sleep(IDLE)
    return (process_time() - start) / IDLE


async def end() -> float:
    for trigger, _ in running:
        await trigger.stop()
    await asyncio.gather(*(task for _, task in running))
    return 0.0


questions: dict[str, Callable[[], Awaitable[float]]] = {f"sleep_{timers}": partial(sleep, timers) for timers in SIZES}
answer(**questions, arm=arm, tick=tick, idle=idle, end=end)
