"""Due times of a cron expression in a time zone, across changes of its clocks."""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from .fields import LAST, read_fields
from .wall import end_of_gap, shift_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .schedule import Due

INSTANT = timedelta(microseconds=1)
YEARS = 50
"""An expression without a due time in as many years is never due."""


class Cron:
    """Due by a cron expression in a time zone, across daylight-saving changes as Debian's cron.

    An expression with a fixed minute and hour fires once a day: at the end of the gap when its time does not exist, the
    first time when its time comes twice. One with `*` in the minute or hour follows the clock on the wall. When the day
    of month or the day of week begins with `*`, both must match; otherwise either.
    """

    on_the_wall = True

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        from zoneinfo import ZoneInfo

        self.zone = ZoneInfo(timezone)
        self._expression = expression
        minute, hour, day, _, weekday = expression.split()
        self._fixed = not (minute.startswith("*") or hour.startswith("*"))
        self._both = day.startswith("*") or weekday.startswith("*")
        self._fields = fields = read_fields(expression)
        self._times = [time(hour, minute) for hour in sorted(fields.hours) for minute in sorted(fields.minutes)]
        self._days_of = lru_cache(maxsize=32)(self._matching_days)

    @staticmethod
    def check(expression: str) -> None:
        """Raise `ValueError` for an expression that cannot be read, or is never due."""
        try:
            read_fields(expression)
        except ValueError as error:
            raise ValueError(f"{expression!r} is no cron expression: {error}") from None
        if Cron(expression).after(datetime(2026, 1, 1, tzinfo=UTC)) is None:
            raise ValueError(f"{expression!r} is no cron expression that is ever due; see its day and month")

    def after(self, moment: datetime) -> datetime | None:
        """Return the first due time after `moment`."""
        for due, _ in self._walk(moment):
            return due
        return None

    def missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times, looking back no farther than needed."""
        span = timedelta(hours=1)
        while True:
            start = max(first, now - span)
            walk = self._walk(start - INSTANT)
            found = [due for due, _ in takewhile(lambda each: each[0] <= now, walk)]
            if start == first or len(found) >= limit:
                return found[-limit:]
            span *= 4

    def coming(self, moment: datetime, origin: datetime) -> Iterator[Due]:
        """Yield the due times after `moment`, and what of the clocks' changes concerns them."""
        return self._walk(moment)

    def describe(self) -> dict[str, Any]:
        """Return the expression."""
        return {"cron": self._expression}

    def _walk(self, moment: datetime) -> Iterator[Due]:
        """Yield the due times after `moment`, by walking over times on the wall."""
        local = moment.astimezone(self.zone)
        start = local.replace(tzinfo=None, fold=0) - max(timedelta(), -shift_at(local))
        last, second_pass = moment, list[tuple[datetime, str]]()
        for wall in self._walls(start):
            aware = wall.replace(tzinfo=self.zone)
            shift = shift_at(aware)
            if shift or second_pass:
                dues, repeated = self._at_change(aware, shift)
                second_pass += repeated
                if repeated:  # an hour that comes twice is gone through before it is begun again
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
        """Return when a time on the wall is due, and when it is due once more."""
        first, shown = wall.astimezone(UTC), f"{wall:%H:%M}"
        if shift > timedelta():
            note = f"clocks go forward: {shown} does not exist"
            return ([(end_of_gap(wall), note)] if self._fixed else []), []
        if not shift:
            return [(first, "")], []
        if self._fixed:
            return [(first, f"clocks go back: {shown} is in the repeated hour: fires once")], []
        again = wall.replace(fold=1).astimezone(UTC)
        note = f"clocks go back: {shown} is in the repeated hour"
        return [(first, f"{note}, the first time")], [(again, f"{note}, the second time")]

    def _walls(self, start: datetime) -> Iterator[datetime]:
        """Yield the times on the wall from the minute of `start` on; naive."""
        began, times = start.date(), self._times
        skipped = bisect_left(times, start.time().replace(second=0, microsecond=0))
        for day in self._dates(began):
            for number in range(skipped if day == began else 0, len(times)):
                yield datetime.combine(day, times[number])

    def _dates(self, start: date) -> Iterator[date]:
        first = start.day
        for month in range(start.year * 12 + start.month - 1, min(start.year + YEARS, 9999) * 12):
            if month % 12 + 1 in self._fields.months:
                for day in self._days_of(month // 12, month % 12 + 1):
                    if day >= first:
                        yield date(month // 12, month % 12 + 1, day)
            first = 1

    def _matching_days(self, year: int, month: int) -> list[int]:
        before, length = monthrange(year, month)  # 0 is a Monday
        days, found = self._fields.days, []
        for day in range(1, length + 1):
            by_date = day in days or (day == length and LAST in days)
            by_weekday = self._is_weekday((before + day) % 7, day, length)
            if (by_date and by_weekday) if self._both else (by_date or by_weekday):
                found.append(day)
        return found

    def _is_weekday(self, weekday: int, day: int, length: int) -> bool:
        counted = self._fields.counted
        return (
            weekday in self._fields.weekdays
            or (weekday, (day + 6) // 7) in counted
            or (day + 7 > length and (weekday, LAST) in counted)
        )
