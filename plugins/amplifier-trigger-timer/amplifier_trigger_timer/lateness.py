"""Decide which missed ticks fire, and by how much each tick is delayed on purpose."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from amplifier_core.clock import Clock

    from .config import CatchUp
    from .schedule import Schedule

logger = logging.getLogger(__name__)

CATCH_UP_LIMIT = 1000
"""The most ticks that `catch_up: all` fires: the newest ones."""
STEADY = 0.5
"""Seconds by which the clock on the wall and the monotonic clock may differ between two ticks."""


class Jitter(NamedTuple):
    """A delay of each tick, derived from the name of its timer and its due time: the same after a restart."""

    seconds: float
    name: str

    def apply(self, schedule: Schedule, due: datetime) -> datetime:
        """Return when a tick fires: less than `seconds` after it is due, and before the next one is."""
        if not self.seconds:
            return due
        from hashlib import sha256

        following, span = schedule.next_after(due), timedelta(seconds=self.seconds)
        if following is not None:
            span = min(span, following - due)
        digest = sha256(f"{self.name} {rfc3339(due)}".encode()).digest()
        return due + span * int.from_bytes(digest[:4]) // 2**32


class CatchUpPolicy(NamedTuple):
    """A choice among missed ticks."""

    which: CatchUp
    max_age: float | None = None

    @property
    def limit(self) -> int:
        """How many missed ticks matter; one beyond the limit shows that there were more."""
        return CATCH_UP_LIMIT + 1 if self.which == "all" else 1

    def choose(self, missed: list[datetime], now: datetime, name: str) -> list[datetime]:
        """Return those of `missed` (oldest first) that fire; `name` is the timer's."""
        if self.which == "skip":
            return []
        if self.max_age is not None:
            oldest = now - timedelta(seconds=self.max_age)
            missed = [due for due in missed if due >= oldest]
        if len(missed) > CATCH_UP_LIMIT:
            logger.warning("%s missed more than %d ticks; the newest fire", name, CATCH_UP_LIMIT)
        return missed[-CATCH_UP_LIMIT:] if self.which == "all" else missed[-1:]


class ClockWatch:
    """A detector of jumps: somebody set the clock on the wall, or the machine was suspended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = clock.now(), clock.monotonic()

    def has_jumped(self) -> bool:
        """Return whether the clock jumped since the last call."""
        wall, steady = self._seen
        self._seen = now, ticks = self._clock.now(), self._clock.monotonic()
        return abs((now - wall).total_seconds() - (ticks - steady)) > STEADY


def rfc3339(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
