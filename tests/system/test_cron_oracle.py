"""Compare the timer's cron, read by croniter, with cronsim, at every change of the clocks from 2020 to 2035.

cronsim follows Debian's cron. `CRON_EXPRESSIONS=1000 CRON_CHANGES=all` compares every expression at every change of
every zone; a number compares each at as many of the odd zones' changes, in turn. `SEED` chooses other expressions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice, takewhile
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim

from amplifier_trigger_timer.cron import Cron

pytestmark = pytest.mark.slow

EXPRESSIONS = int(os.environ.get("CRON_EXPRESSIONS", "60"))
CHANGES = os.environ.get("CRON_CHANGES", "4")
SEED = os.environ.get("SEED", "20261121")

FIRST, LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
BEFORE, AFTER = timedelta(hours=5), timedelta(hours=9)
WEEK, MINUTE, HOUR = timedelta(weeks=1), timedelta(minutes=1), timedelta(hours=1)

ODD = [
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # by half an hour
    "Antarctica/Troll",  # by two hours
    "Antarctica/Casey",  # by three
    "Africa/Juba",  # for good
    "America/Santiago",  # at midnight: a day without 00:30, and one with 23:30 twice
    "America/Havana",
    "America/Nuuk",
    "Asia/Beirut",
    "Africa/Cairo",
    "Africa/Casablanca",  # at Ramadan
    "Atlantic/Azores",
    "Asia/Tehran",
    "America/St_Johns",
    "Pacific/Chatham",
]


class Change(NamedTuple):
    """A change of a zone's clock, to the minute, and its size."""

    zone: str
    at: datetime
    by: timedelta


def distinct_changes(zones: Iterable[str]) -> list[Change]:
    """Return the changes, one for each look on the wall."""
    found = (change for zone in zones for change in changes(zone))
    return list(
        {(each.at.astimezone(ZoneInfo(each.zone)).replace(tzinfo=None), each.by): each for each in found}.values()
    )


def changes(zone: str) -> Iterator[Change]:
    clock = ZoneInfo(zone)
    for number in range((LAST - FIRST) // WEEK):
        low, high = FIRST + WEEK * number, FIRST + WEEK * (number + 1)
        before, after = offset(low, clock), offset(high, clock)
        if before != after:
            while high - low > MINUTE:
                middle = low + (high - low) // MINUTE // 2 * MINUTE
                low, high = (middle, high) if offset(middle, clock) == before else (low, middle)
            yield Change(zone, high, after - before)


def offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def expressions(count: int) -> Iterator[str]:
    random = Random(SEED)
    return islice(iter(lambda: " ".join(_field(random, *field) for field in _FIELDS), None), count)


_FIELDS = ((0, 59, 0.3), (0, 23, 0.3), (1, 31, 0.7), (1, 12, 0.85), (0, 6, 0.75))


def _field(random: Random, low: int, high: int, star: float) -> str:
    """Return one field of an expression; hours are mostly those at which clocks are changed."""
    if random.random() < star:
        return "*"
    numbers = (0, 1, 1, 2, 2, 3, 23) if high == 23 else range(low, high + 1)
    start, step = random.choice(numbers), random.choice((2, 3, 5, 7, 10, 15, 20, 30))
    end = random.randint(min(start + 1, high), high)
    lists = f"{start},{random.choice(numbers)}", f"{start}-{end}", f"{low}-{high}/{step}", f"*/{min(step, high)}"
    return random.choice((str(start), str(start), *lists))


def due_by_cronsim(expression: str, zone: str, start: datetime, end: datetime, by: timedelta) -> list[datetime]:
    """Return the due times after `start` and before `end`, in a window at which clocks are changed `by` so much.

    cronsim goes by whole hours, and to midnights that a day may not have. Where it skips times that the clock on the
    wall shows, and the expression follows that clock, its fields are compared minute by minute.
    """
    clock = ZoneInfo(zone)
    sim = CronSim(expression, start.astimezone(clock))
    if sim.fixup_tz is None and _is_missed(start + BEFORE, by, clock):
        minutes = (start + MINUTE * number for number in range(1, (end - start) // MINUTE))
        return [minute for minute in minutes if _matches(sim, minute.astimezone(clock))]
    dues = takewhile(lambda due: due.astimezone(UTC) < end, sim)
    return [due.astimezone(UTC) for due in dues if due.astimezone(UTC).astimezone(clock) == due]


def _is_missed(change: datetime, by: timedelta, clock: ZoneInfo) -> bool:
    """Return whether clocks are changed within an hour, by part of one, or so that a midnight is left out."""
    after = change.astimezone(clock).replace(tzinfo=None)
    before = after - by
    without_midnight = before < after and (before.date() != after.date() or before.hour == 0)
    return bool(by % HOUR or before.minute or without_midnight)


def _matches(sim: CronSim, wall: datetime) -> bool:
    return (
        wall.minute in sim.minutes
        and wall.hour in sim.hours
        and wall.month in sim.months
        and sim.match_day(wall.date())
    )


def due_by_ours(schedule: Cron, start: datetime, end: datetime) -> list[datetime]:
    return list(takewhile(lambda due: due < end, (due for due, _ in schedule.walk(start, start))))


def test_every_change_of_the_clocks_from_2020_to_2035_is_as_cronsim_has_it() -> None:
    everywhere = distinct_changes(sorted(available_timezones()) if CHANGES == "all" else ODD)
    in_turn, each = cycle(everywhere), len(everywhere) if CHANGES == "all" else int(CHANGES)
    differing = []
    for expression in expressions(EXPRESSIONS):
        for zone, at, by in islice(in_turn, each):
            start, end = at - BEFORE, at + AFTER
            if due_by_ours(Cron(expression, zone), start, end) != due_by_cronsim(expression, zone, start, end, by):
                differing.append(f"{expression} in {zone} at {at}")
    assert differing == []


def test_a_fixed_time_fires_exactly_once_a_day_at_every_change_of_the_clocks() -> None:
    counts = {
        (zone, at, hour): len(due_by_ours(Cron(f"30 {hour} * * *", zone), noon(at, zone, -1), noon(at, zone, 1)))
        for zone, at, _ in distinct_changes(ODD)
        for hour in (0, 1, 2, 3, 23)
    }
    assert {place: count for place, count in counts.items() if count != 2} == {}


def noon(moment: datetime, zone: str, days: int) -> datetime:
    """Return a noon in UTC: that of the day of `moment` in the zone, and so many days after."""
    day = moment.astimezone(ZoneInfo(zone)) + timedelta(days=days)
    return day.replace(hour=12, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)
