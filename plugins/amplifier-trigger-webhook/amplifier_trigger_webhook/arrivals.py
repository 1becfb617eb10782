"""Requests on their way into the store."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from amplifier_core.triggers import TriggerEvent


class Arrival:
    """One event that a request waits for. Leaving its block before `store` was called says that it was not stored."""

    def __init__(self, event: TriggerEvent) -> None:
        self.event = event
        self.stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def store(self) -> None:
        """Say that the event is stored."""
        self._settle(True)

    def _settle(self, stored: bool) -> None:
        if not self.stored.done():
            self.stored.set_result(stored)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle(False)


class Arrivals:
    """The events that wait to be yielded, in their order; once it is closed, none of them is."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: deque[Arrival] = deque()
        self._news = asyncio.Event()
        self._reading: set[asyncio.Timeout] = set()

    async def stored(self, event: TriggerEvent) -> bool:
        """Hand the event on; return whether it was stored. Cancelled before it was yielded, it never is."""
        arrival = Arrival(event)
        if self.closed:
            return False
        self._waiting.append(arrival)
        self._news.set()
        return await arrival.stored

    async def next(self) -> Arrival | None:
        """Return the next one that somebody still waits for, or None when there will be none."""
        while not self.closed:
            while self._waiting:
                arrival = self._waiting.popleft()
                if not arrival.stored.done():
                    return arrival
            self._news.clear()
            await self._news.wait()
        return None

    def reading(self, limit: asyncio.Timeout, begins: bool) -> None:
        """Note that a body is being read, or was: closing ends its time."""
        (self._reading.add if begins else self._reading.discard)(limit)

    def close(self) -> None:
        """Let nobody wait any longer; the event that is being stored now is settled by who stores it."""
        self.closed = True
        self._news.set()
        while self._waiting:
            self._waiting.popleft()._settle(False)
        for limit in self._reading:
            limit.reschedule(0)
        self._reading.clear()
