"""When a timer is due: every so many seconds, once, or as a cron expression says (`cron`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from .wall import end_of_gap, shift_at

if TYPE_CHECKING:
    from collections.abc import Iterator

Due: TypeAlias = "tuple[datetime, str]"
"""A due time in UTC, and what is special about it."""


class Schedule(Protocol):
    """A sequence of due times, in UTC."""

    on_the_wall: bool
    """Whether its times are those of a calendar: the same one is the same, whatever was done to the clock."""

    @property
    def zone(self) -> tzinfo:
        """What its times are shown in."""
        ...

    def after(self, moment: datetime) -> datetime | None:
        """Return the first due time after `moment`; None when there is none."""
        ...

    def missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times from `first` (one of them) to `now`, oldest first; at most the newest `limit`."""
        ...

    def coming(self, moment: datetime, origin: datetime) -> Iterator[Due]:
        """Yield the due times after `moment`, and what is special about each; an interval counts from `origin`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what an event says of its schedule."""
        ...


class Interval:
    """Due every `seconds` from an origin: a slow handler shifts nothing."""

    on_the_wall = False
    zone: tzinfo = UTC

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

    def coming(self, moment: datetime, origin: datetime) -> Iterator[Due]:
        """Yield the due times after `moment`."""
        due = origin + self._period * ((moment - origin) // self._period + 1)
        while True:
            yield due, ""
            try:
                due += self._period
            except OverflowError:  # the calendar ends with the year 9999
                return

    def describe(self) -> dict[str, Any]:
        """Return the interval in seconds."""
        return {"interval": self._seconds}


class Once:
    """Due at one time: an instant, or a time on the wall of a zone, which is due as a cron's would be."""

    on_the_wall = True

    def __init__(self, text: str, timezone: str = "UTC") -> None:
        from zoneinfo import ZoneInfo

        self._text, self._note = text, ""
        said = datetime.fromisoformat(text)
        self.zone: tzinfo = said.tzinfo or ZoneInfo(timezone)
        wall = said.replace(tzinfo=self.zone)
        self._due = wall.astimezone(UTC)
        shift = shift_at(wall)
        if shift > timedelta():
            self._due, self._note = end_of_gap(wall), f"clocks go forward: {wall:%H:%M} does not exist"
        elif shift:
            self._note = f"clocks go back: {wall:%H:%M} is in the repeated hour: fires once"

    def after(self, moment: datetime) -> datetime | None:
        """Return the time, unless it is over."""
        return self._due if self._due > moment else None

    def missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the time when it is over."""
        return [first] if first <= now else []

    def coming(self, moment: datetime, origin: datetime) -> Iterator[Due]:
        """Yield the time, unless it is over."""
        if self._due > moment:
            yield self._due, self._note

    def describe(self) -> dict[str, Any]:
        """Return the time as it was written."""
        return {"at": self._text}
