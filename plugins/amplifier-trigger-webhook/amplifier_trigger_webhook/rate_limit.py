"""Limit the requests a minute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_core.clock import Clock


class RateLimit:
    """A bucket of `rate` requests; one more comes in every `60 / rate` seconds. None: any number."""

    def __init__(self, rate: int | None, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._left = float(rate or 0)
        self._seen = clock.monotonic()

    def take(self) -> int:
        """Count a request and return 0, or return the seconds (1 or more) until there is room for one."""
        if self._rate is None:
            return 0
        now = self._clock.monotonic()
        self._left = min(self._rate, self._left + (now - self._seen) * self._rate / 60)
        self._seen = now
        if self._left < 1:
            return max(1, math.ceil((1 - self._left) * 60 / self._rate))
        self._left -= 1
        return 0
