"""The next due time of cron expressions by cronsim, which knows the time zones' changes of the clock."""

from __future__ import annotations

from datetime import datetime
from itertools import cycle
from zoneinfo import ZoneInfo

from answering import answer, seconds_of
from cronsim import CronSim

EXPRESSIONS = ("*/5 * * * *", "0 9 * * mon-fri", "30 2 * * *", "15,45 8-18 1-7 * *", "0 0 29 2 *")
START = datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
END = datetime(2040, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))

walks = {expression: CronSim(expression, START) for expression in EXPRESSIONS}
turns = cycle(EXPRESSIONS)


async def step() -> None:
    expression = next(turns)
    if next(walks[expression]) >= END:
        walks[expression] = CronSim(expression, START)


async def due() -> float:
    """Return the seconds of one."""
    return await seconds_of(step)


answer(due=due)
