"""Let timers sleep, and wake them when the clock on the wall was set."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    import asyncio

    from amplifier_core.clock import Clock

LOOK_EVERY = 60.0
"""Seconds until somebody reads the clock again: people set it, and a suspended machine sleeps longer."""
STEADY = 0.02
"""Seconds by which the clock on the wall may leave the monotonic clock before all timers compute their sleep anew."""


class Sleepers:
    """The sleeping timers of one clock in one event loop.

    One of them, the keeper, sleeps no longer than `LOOK_EVERY`, and wakes the others when the clock has moved: an idle
    process wakes once a minute, however many timers it has. Whoever sleeps while there is no keeper becomes it; a
    keeper that ends wakes another timer for that, its heir; an heir that ends instead wakes the next one.
    """

    def __init__(self, clock: Clock) -> None:
        import asyncio

        self._clock, self._loop = clock, asyncio.get_running_loop()  # while it lives, no other one has their ids
        self._offset = self._read_offset()
        self._sleeping: dict[asyncio.Future[None], None] = {}
        self._keeper: asyncio.Future[None] | None = None
        self._heir: asyncio.Future[None] | None = None

    @classmethod
    def of(cls, clock: Clock) -> Sleepers:
        """Return those of a clock in the running loop: the same ones, as long as somebody keeps them."""
        import asyncio

        key = id(asyncio.get_running_loop()), id(clock)
        found = _sleepers.get(key)
        if found is None:
            found = _sleepers[key] = cls(clock)
        return found

    def begin(self, seconds: float) -> asyncio.Future[None]:
        """Return a future that ends after so many seconds, or before: then look at the clock again."""
        import asyncio

        is_keeper = self._keeper is None
        sleep = asyncio.ensure_future(self._clock.sleep(min(seconds, LOOK_EVERY) if is_keeper else seconds))
        if is_keeper:
            self._keeper = sleep
        self._sleeping[sleep] = None
        sleep.add_done_callback(self._end)
        return sleep

    def _end(self, sleep: asyncio.Future[None]) -> None:
        del self._sleeping[sleep]
        if sleep is self._keeper:
            self._keeper = None
        elif sleep is not self._heir or self._keeper is not None:
            return
        offset = self._read_offset()
        woken = [other for other in self._sleeping if not other.done()]
        self._heir = woken[0] if woken else None
        if abs(offset - self._offset) <= STEADY:
            del woken[1:]
        else:
            self._offset = offset
        for other in woken:
            other.cancel()

    def _read_offset(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()


_sleepers: WeakValueDictionary[tuple[int, int], Sleepers] = WeakValueDictionary()
