"""Follow the clock of a shared store."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from amplifier_core.clock import SystemClock

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.shared_stores import SharedStore


class StoreClock:
    """Tells the store's time: as it was at the last `follow`, and as much later as this machine counts since.

    The wall clock of this machine is never asked: it may be hours wrong. The time told is ahead of the
    store's by the drift since the last `follow` at most; after a suspension of the machine it lies behind, and so
    steals nothing.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._own = clock or SystemClock()
        self._time: datetime | None = None
        self._counted = 0.0

    async def follow(self, store: SharedStore) -> None:
        """Ask the store for its time. Raises `StoreUnavailable`."""
        time = await store.now()
        self._time, self._counted = time, self._own.monotonic()

    def now(self) -> datetime:
        """Return the store's time; before the first `follow`, that of this machine."""
        if self._time is None:
            return self._own.now()
        return self._time + timedelta(seconds=self._own.monotonic() - self._counted)

    def monotonic(self) -> float:
        """Return seconds of this machine's monotonic clock."""
        return self._own.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await self._own.sleep(seconds)
