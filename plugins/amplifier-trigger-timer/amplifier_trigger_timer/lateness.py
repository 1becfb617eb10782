"""What happens to ticks that were not fired in time, and how late each may be on purpose."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_core.clock import Clock

    from .config import CatchUp
    from .schedule import Schedule

logger = logging.getLogger(__name__)

CATCH_UP_LIMIT = 1000
"""Ticks that `catch_up: all` fires at most, the newest."""
STEADY = 0.5
"""Seconds by which the clock on the wall and the one that never jumps may part between two ticks."""


@dataclass(frozen=True, slots=True)
class Jitter:
    """Delays each tick by what the name of its timer and its due time say: the same after a restart."""

    seconds: float
    name: str

    def fires(self, schedule: Schedule, due: datetime) -> datetime:
        """Return when a tick fires: less than `seconds` after it is due, and before the next one is."""
        if not self.seconds:
            return due
        from hashlib import sha256

        following, span = schedule.after(due), timedelta(seconds=self.seconds)
        if following is not None:
            span = min(span, following - due)
        digest = sha256(f"{self.name} {rfc3339(due)}".encode()).digest()
        return due + span * int.from_bytes(digest[:4]) // 2**32


@dataclass(frozen=True, slots=True)
class CatchUpPolicy:
    """Which of the ticks that were missed fire."""

    which: CatchUp
    max_age: float | None = None

    @property
    def limit(self) -> int:
        """How many missed ticks are of interest; one more shows that there were more."""
        return CATCH_UP_LIMIT + 1 if self.which == "all" else 1

    def chosen(self, missed: list[datetime], now: datetime, name: str) -> list[datetime]:
        """Return those of `missed`, oldest first, that fire; `name` is the timer's."""
        if self.which == "skip":
            return []
        if self.max_age is not None:
            oldest = now - timedelta(seconds=self.max_age)
            missed = [due for due in missed if due >= oldest]
        if len(missed) > CATCH_UP_LIMIT:
            logger.warning("%s missed more than %d ticks; the newest fire", name, CATCH_UP_LIMIT)
        return missed[-CATCH_UP_LIMIT:] if self.which == "all" else missed[-1:]


class Jumps:
    """Tells whether the clock on the wall was set, or stood still with the machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = clock.now(), clock.monotonic()

    def noticed(self) -> bool:
        """Return whether it jumped since this was asked last."""
        wall, steady = self._seen
        self._seen = now, ticks = self._clock.now(), self._clock.monotonic()
        return abs((now - wall).total_seconds() - (ticks - steady)) > STEADY


def rfc3339(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
