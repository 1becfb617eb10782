"""Offer a clock that only tests move.

    clock = VirtualClock()
    trigger.bind(TriggerContext("tests/timer#0", clock=clock))
    ...
    await clock.advance(3600)  # an hour passes, at once

Its sleepers wake in the order of their deadlines, every time the same.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count

START = datetime(2026, 1, 1, tzinfo=UTC)
SETTLE_TURNS = 25
"""Turns of the event loop for everything else before time moves on."""


class VirtualClock:
    """A `Clock` without time of its own: only `advance` moves it; for one event loop."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Return the start plus the advanced time, to the microsecond."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the advanced seconds."""
        return self._elapsed

    @property
    def sleeping(self) -> int:
        """The number of sleeping tasks."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def set_back(self, seconds: float) -> None:
        """Set the wall clock back by `seconds`; the monotonic one and sleepers go on."""
        self._start -= timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        """Suspend the task until time has advanced by `seconds`; not at all when they are not positive."""
        if seconds <= 0:
            return
        future = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self._elapsed + seconds, next(self._order), future))
        self._tell_watchers()
        await future

    async def until_sleeping(self, tasks: int = 1) -> None:
        """Return when at least this many tasks sleep: then everything waits for time alone."""
        if self.sleeping < tasks:
            future = asyncio.get_running_loop().create_future()
            self._watchers.append((tasks, future))
            await future

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: wake the sleepers in the order of their deadlines, and let each settle before the next.

        A task that sleeps again wakes again if its deadline falls within `seconds`. Work in other threads is not
        awaited. Raises `ValueError` for negative seconds.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds})")
        target = self._elapsed + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            self._elapsed, _, future = heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
                await self._settle()
        self._elapsed = target
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)

    def _tell_watchers(self) -> None:
        for tasks, future in self._watchers:
            if not future.done() and self.sleeping >= tasks:
                future.set_result(None)
        self._watchers = [watcher for watcher in self._watchers if not watcher[1].done()]
