"""Compute due times of a cron expression in a time zone, across changes of its clock."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from heapq import merge
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any

from .dst import end_of_gap, shift_at
from .expression import read_expression

if TYPE_CHECKING:
    from collections.abc import Iterator

    from croniter import croniter

    from .schedule import Due

INSTANT = timedelta(microseconds=1)
CACHE_SIZE = 1024
"""Expressions that are known to be good, at most."""


class Cron:
    """A schedule by a cron expression in a time zone; daylight saving as in Debian's cron.

    An expression with a fixed minute and hour fires once a day: at the end of the gap if the clock skips its time, the
    first time if the clock shows it twice. An expression with `*` in the minute or hour follows the clock on the wall.

    croniter supplies the days, and never sees a time zone: croniter 7.0 fires a fixed time twice when clocks go back.
    """

    on_the_wall = True

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        from zoneinfo import ZoneInfo

        self.zone = ZoneInfo(timezone)
        self._expression = expression
        self._times, self._days = read_expression(expression)
        minute, hour, *_ = expression.split()
        self._fixed = not (minute.startswith("*") or hour.startswith("*"))

    @staticmethod
    @lru_cache(CACHE_SIZE)  # each start checks an expression several times
    def check(expression: str) -> None:
        """Raise `ValueError` for an expression that cannot be read, or is never due."""
        try:
            due = Cron(expression).next_after(datetime(2026, 1, 1, tzinfo=UTC))
        except ValueError as error:
            raise ValueError(f"{expression!r} is not a cron expression: {error}") from None
        if due is None:
            raise ValueError(f"the cron expression {expression!r} is never due; check its day and month")

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first due time after `moment`."""
        return next((due for due, _ in self._walk(moment)), None)

    def list_missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times from `first` to `now`, and look back no farther than needed."""
        span = timedelta(hours=1)
        while True:
            start = max(first, now - span)
            walk = self._walk(start - INSTANT)
            found = [due for due, _ in takewhile(lambda each: each[0] <= now, walk)]
            if start == first or len(found) >= limit:
                return found[-limit:]
            span *= 4

    def walk(self, moment: datetime, origin: datetime) -> Iterator[Due]:
        """Yield the due times after `moment`; the note tells of a change of the clock."""
        return self._walk(moment)

    def describe(self) -> dict[str, Any]:
        """Return the expression."""
        return {"cron": self._expression}

    def _walk(self, moment: datetime) -> Iterator[Due]:
        local = moment.astimezone(self.zone)
        start = local.replace(tzinfo=None, fold=0) - max(timedelta(), -shift_at(local))
        last, second_pass = moment, list[tuple[datetime, str]]()
        for wall in self._walls(start):
            aware = wall.replace(tzinfo=self.zone)
            shift = shift_at(aware)
            if shift or second_pass:
                dues, repeated = self._at_change(aware, shift)
                second_pass += repeated
                if repeated:  # a repeated hour passes completely before it begins again
                    pending = dues
                else:
                    pending, second_pass = second_pass + dues, []
            else:
                pending = [(aware.astimezone(UTC), "")]
            for due in pending:
                if due[0] > last:
                    last = due[0]
                    yield due

    def _at_change(self, wall: datetime, shift: timedelta) -> tuple[list[Due], list[Due]]:
        """Return the due times of a time on the wall: at once, and in the second pass of a repeated hour."""
        first, shown = wall.astimezone(UTC), f"{wall:%H:%M}"
        if shift > timedelta():
            note = f"clocks go forward: {shown} does not exist"
            return ([(end_of_gap(wall), note)] if self._fixed else []), []
        if not shift:
            return [(first, "")], []
        note = f"clocks go back: {shown} is in the repeated hour"
        if self._fixed:
            return [(first, f"{note}: fires once")], []
        again = wall.replace(fold=1).astimezone(UTC)
        return [(first, f"{note}, the first time")], [(again, f"{note}, the second time")]

    def _walls(self, start: datetime) -> Iterator[datetime]:
        """Yield the times on the wall after the minute of `start`; naive."""
        today, passed = start.date(), bisect_right(self._times, start.time())
        first = today if passed < len(self._times) else today + timedelta(days=1)
        days = merge(*(self._matching_days(days, first) for days in self._days))
        for day, _ in groupby(days):  # two croniters may give the same day
            for number in range(passed if day == today else 0, len(self._times)):
                yield datetime.combine(day, self._times[number])

    @staticmethod
    def _matching_days(days: croniter, start: date) -> Iterator[date]:
        """Yield the days from `start` on, until the calendar ends or croniter finds none in 50 years."""
        day = datetime.combine(start, time()) - timedelta(minutes=1)
        with suppress(ValueError, OverflowError):
            while True:
                day = days.get_next(datetime, day)
                yield day.date()
