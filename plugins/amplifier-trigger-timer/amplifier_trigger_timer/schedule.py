"""When a timer is due: every so many seconds, or as a cron expression says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTANT = timedelta(microseconds=1)


class Schedule(Protocol):
    """An endless sequence of due times, in UTC."""

    def after(self, moment: datetime) -> datetime:
        """Return the first due time after `moment`."""
        ...

    def missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times from `first` (one of them) to `now`, oldest first; at most the newest `limit`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what an event says of its schedule."""
        ...


class Interval:
    """Due every `seconds` from an origin: a slow handler shifts nothing."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._period = timedelta(seconds=seconds)

    def after(self, moment: datetime) -> datetime:
        """Return the time one interval after `moment`."""
        return moment + self._period

    def missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times, without walking through those before the newest `limit`."""
        last = (now - first) // self._period
        return [first + self._period * tick for tick in range(max(0, last + 1 - limit), last + 1)]

    def describe(self) -> dict[str, Any]:
        """Return the interval in seconds."""
        return {"interval": self._seconds}


class Cron:
    """Due by a cron expression in a time zone, across daylight-saving changes as Debian's cron.

    An expression with a fixed minute and hour fires once a day: at the end of the gap when its time does not exist, the
    first time when its time comes twice. One with `*` in the minute or hour follows the clock on the wall.
    """

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        from zoneinfo import ZoneInfo

        self._expression = expression
        self._zone = ZoneInfo(timezone)
        minute, hour, *_ = expression.split()
        self._fixed = not (minute.startswith("*") or hour.startswith("*"))

    @staticmethod
    def check(expression: str) -> None:
        """Raise `ValueError` for an expression that is not five fields, or is never due."""
        from croniter import croniter  # type: ignore[import-untyped]

        if len(expression.split()) != 5:
            raise ValueError(f"{expression!r} is not minute, hour, day of month, month, day of week: '0 9 * * mon-fri'")
        if re.search(r"\b[hr]\b", expression, re.IGNORECASE):
            raise ValueError(f"{expression!r}: H and R name another time at every start; write the minute or hour")
        try:
            croniter(expression, datetime(2026, 1, 1, tzinfo=UTC)).get_next(datetime)
        except (ValueError, TypeError, LookupError) as error:
            raise ValueError(f"{expression!r} is no cron expression that is ever due: {error}") from None

    def after(self, moment: datetime) -> datetime:
        """Return the first due time after `moment`."""
        return next(self._walk(moment))

    def missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times, looking back no farther than needed."""
        span = timedelta(hours=1)
        while True:
            start = max(first, now - span)
            found = list(takewhile(lambda due: due <= now, self._walk(start - INSTANT)))
            if start == first or len(found) >= limit:
                return found[-limit:]
            span *= 4

    def describe(self) -> dict[str, Any]:
        """Return the expression."""
        return {"cron": self._expression}

    def _walk(self, moment: datetime) -> Iterator[datetime]:
        """Yield the due times after `moment`, by walking over times on the wall."""
        last, second_pass = moment, list[datetime]()
        for wall in self._walls(moment):
            dues, repeated = self._instants(wall)
            if repeated:  # an hour that comes twice is gone through before it is begun again
                second_pass += repeated
            else:
                dues, second_pass = second_pass + dues, []
            for due in dues:
                if due > last:
                    last = due
                    yield due

    def _instants(self, wall: datetime) -> tuple[list[datetime], list[datetime]]:
        """Return when a time on the wall is due, and when it is due once more."""
        local, again = (wall.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        first, second = local.astimezone(UTC), again.astimezone(UTC)
        gap = _offset(again) - _offset(local)  # PEP 495: positive in a gap, negative where a time repeats
        if gap > timedelta():
            return ([self._end_of_gap(second, first)] if self._fixed else []), []
        return [first], [second] if gap < timedelta() and not self._fixed else []

    def _walls(self, moment: datetime) -> Iterator[datetime]:
        from croniter import croniter

        local = moment.astimezone(self._zone)
        repeated = _offset(local.replace(fold=0)) - _offset(local.replace(fold=1))
        start = local.replace(tzinfo=None, fold=0) - max(timedelta(), repeated)
        walk = croniter(self._expression, start)
        while True:
            yield walk.get_next(datetime)

    def _end_of_gap(self, low: datetime, high: datetime) -> datetime:
        """Return the instant between the two at which the clock on the wall is moved, to the second."""
        offset = _offset(low.astimezone(self._zone))
        while high - low > timedelta(seconds=1):
            middle = (low + (high - low) / 2).replace(microsecond=0)
            if _offset(middle.astimezone(self._zone)) == offset:
                low = middle
            else:
                high = middle
        return high


def _offset(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta()
