"""Compute due times: every so many seconds, or once; `cron` has those of cron expressions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from .dst import end_of_gap, shift_at

if TYPE_CHECKING:
    from collections.abc import Iterator

Due: TypeAlias = "tuple[datetime, str]"
"""A due time in UTC, with a note for people."""


class Schedule(Protocol):
    """A sequence of due times, in UTC."""

    on_the_wall: bool
    """Whether the times are those of a calendar: a time is the same after somebody has set the clock."""

    @property
    def zone(self) -> tzinfo:
        """The zone for showing the times."""
        ...

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first due time after `moment`; None if there is none."""
        ...

    def list_missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times from `first` (one of them) to `now`, oldest first; at most the newest `limit`."""
        ...

    def walk(self, moment: datetime, origin: datetime) -> Iterator[Due]:
        """Yield the due times after `moment`, each with a note; an interval counts from `origin`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the part of an event's data that names the schedule."""
        ...


class Interval:
    """A schedule of every `seconds` from an origin: a slow handler shifts nothing."""

    on_the_wall = False
    zone: tzinfo = UTC

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._period = timedelta(seconds=seconds)

    def next_after(self, moment: datetime) -> datetime:
        """Return the time one interval after `moment`."""
        return moment + self._period

    def list_missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the due times, without a walk through those before the newest `limit`."""
        last = (now - first) // self._period
        return [first + self._period * tick for tick in range(max(0, last + 1 - limit), last + 1)]

    def walk(self, moment: datetime, origin: datetime) -> Iterator[Due]:
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
    """A schedule of one time: an instant, or a time on the wall of a zone, due as a fixed time of cron."""

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

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the time, unless it is over."""
        return self._due if self._due > moment else None

    def list_missed(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """Return the time if it is over."""
        return [first] if first <= now else []

    def walk(self, moment: datetime, origin: datetime) -> Iterator[Due]:
        """Yield the time, unless it is over."""
        if self._due > moment:
            yield self._due, self._note

    def describe(self) -> dict[str, Any]:
        """Return the time as the bundle writes it."""
        return {"at": self._text}
