"""Measure a timer's drift on the machine's own clock, and the search for the next due time of a cron expression."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from croniter import croniter

from amplifier_core.triggers import TriggerContext
from amplifier_trigger_timer import TimerTrigger
from amplifier_trigger_timer.cron import Cron

from .environment import peers_python
from .measure import Figure, Row, called, in_turns
from .worker import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PERIOD, WORK, TICKS = 0.01, 0.005, 1000
"""Seconds, seconds, ticks."""
AT_MOST_DRIFT = 1.0  # goal: one period in total
AT_MOST = 1.5
"""croniter supplies the days; the layer for changes of the clock may add half of its time (measured: 0.9 to 1.2)."""
ZONE = "Europe/Berlin"
START = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2040, 1, 1, tzinfo=UTC)
EXPRESSIONS = ("*/5 * * * *", "0 9 * * mon-fri", "30 2 * * *", "15,45 8-18 1-7 * *", "0 0 29 2 *")
CALLS = 2000


async def rows() -> AsyncIterator[Row]:
    """Let a timer tick, and ask for the next due time of five expressions in turn."""
    yield Row(
        "drift of 1,000 ticks of 10 ms, 5 ms work each / their period",
        await _drift(),
        PERIOD,
        at_most_ratio=AT_MOST_DRIFT,
    )
    ours, peer = await in_turns(called(_ours(), CALLS), called(_croniter(), CALLS), rounds=11)
    yield Row("next fire of a cron expression / croniter alone", ours, peer, at_most_ratio=AT_MOST)
    if (python := peers_python()) is not None:
        async with worker(python, "cron_cronsim") as process:
            ours, peer = await in_turns(called(_ours(), CALLS), process.sample("due"), rounds=11)
        yield Row("next fire of a cron expression / cronsim", ours, peer)


async def _drift() -> Figure:
    """Return by how many seconds the last hundred ticks came later than the first hundred, after their due times.

    Each round has twenty of both: what a machine does meanwhile is no drift.
    """
    trigger, late = TimerTrigger(), list[float]()
    trigger.bind(TriggerContext("bench/timers#1"))
    trigger.configure({"interval_seconds": PERIOD})
    async for event in trigger.watch():
        late.append((datetime.now(UTC) - datetime.fromisoformat(event.data["scheduled"])).total_seconds())
        if len(late) == TICKS:
            await trigger.stop()
        await asyncio.sleep(WORK)
    first, last = late[:100], late[-100:]
    return Figure([median(last[at : at + 20]) - median(first[at : at + 20]) for at in range(0, 100, 20)])


def _ours() -> Callable[[], object]:
    schedules = cycle([Cron(expression, ZONE) for expression in EXPRESSIONS])
    nexts = dict.fromkeys(range(len(EXPRESSIONS)), START)
    turns = cycle(nexts)

    def step() -> None:
        turn, schedule = next(turns), next(schedules)
        due = schedule.next_after(nexts[turn])
        nexts[turn] = due if due is not None and due < END else START

    return step


def _croniter() -> Callable[[], object]:
    start = START.astimezone(ZoneInfo(ZONE))
    walks = cycle([croniter(expression, start) for expression in EXPRESSIONS])

    def step() -> None:
        walk = next(walks)
        if walk.get_next(datetime) >= END:
            walk.set_current(start)

    return step
