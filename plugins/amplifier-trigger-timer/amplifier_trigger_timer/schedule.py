"""When a timer is due: every so many seconds, or as a cron expression says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        return next(self._walk(moment, "get_next"))

    def missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times, walking back from `now`."""
        found: list[datetime] = []
        for due in self._walk(now + timedelta(seconds=1), "get_prev"):
            if due < first or len(found) == limit:
                break
            if due <= now:
                found.append(due)
        return found[::-1]

    def describe(self) -> dict[str, Any]:
        """Return the expression."""
        return {"cron": self._expression}

    def _walk(self, start: datetime, step: str) -> Iterator[datetime]:
        from croniter import croniter

        walk = croniter(self._expression, start.astimezone(self._zone))
        while True:
            due: datetime = getattr(walk, step)(datetime)
            if self._counts(due):
                yield due.astimezone(UTC)

    def _counts(self, due: datetime) -> bool:
        """Refuse the second of two equal wall-clock times, and a time that stands in for one in a gap."""
        if self._fixed:
            return due.fold == 0
        from croniter import croniter

        return bool(croniter.match(self._expression, due))
