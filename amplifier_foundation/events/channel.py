"""What subscriptions with the same filter share: one log, and one place to wait for news."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from sys import maxsize
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from .log import BLOCK, Log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amplifier_core.events import SessionEvent

    from .live import LiveSubscription
    from .names import Filter
    from .subscription import Subscription


class Channel:
    """The events that pass one filter; `count` is how many there were, which is the position of the next."""

    def __init__(
        self, wanted: Filter, forget: Callable[[Channel], None], *, backlog: Sequence[SessionEvent] = ()
    ) -> None:
        self.filter = wanted
        self.members: WeakSet[Subscription] = WeakSet()
        self.log = Log(backlog)
        self.count = len(backlog)
        self._forget = forget
        self._waiters: list[asyncio.Future[None]] = []
        self._due: list[tuple[int, int, ref[LiveSubscription]]] = []
        self._serial = count()
        self._append = self.log.tail.events.append
        self._full_at = self._turn_at = max(BLOCK, self.count)

    def append(self, event: SessionEvent) -> None:
        """Add an event, and wake who waits for one."""
        self._append(event)
        self.count += 1
        if self.count >= self._turn_at:
            self._turn()
        if self._waiters:
            self.wake()

    def notice(self, event: SessionEvent) -> None:
        """Add what the router tells, where there is room: a notice takes nobody's place."""
        if all(member.has_room for member in self.members):
            self.append(event)

    def join(self, member: LiveSubscription) -> None:
        """Take in a reader, who is asked to settle its account when `count` reaches what it says."""
        self.members.add(member)
        self._watch(member.settle(), next(self._serial), ref(member))

    def leave(self, member: Subscription) -> None:
        """Let a reader go; a channel that nobody reads is forgotten."""
        self.members.discard(member)
        self.wake()
        if not self.members:
            self._forget(self)

    def wake(self) -> None:
        """Wake who waits, once, whatever comes before they run."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def news(self) -> asyncio.Future[None]:
        """Return what ends with the next event, or when somebody leaves."""
        if len(self._waiters) > 2 * len(self.members) + 8:  # some gave up waiting
            self._waiters = [waiter for waiter in self._waiters if not waiter.done()]
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def _watch(self, due: int, serial: int, member: ref[LiveSubscription]) -> None:
        if due < maxsize:
            heappush(self._due, (due, serial, member))
            self._turn_at = min(self._turn_at, due)

    def _turn(self) -> None:
        if self.count >= self._full_at:
            self.log.turn(self.count)
            self._append = self.log.tail.events.append
            self._full_at = self.count + BLOCK
            if not self.members:
                self._forget(self)
        self._turn_at = self._full_at
        while self._due and self._due[0][0] <= self.count:
            _, serial, member = heappop(self._due)
            reader = member()
            if reader is not None and not reader.closed:
                self._watch(reader.settle(), serial, member)
        if self._due:
            self._turn_at = min(self._turn_at, self._due[0][0])


class BoundedChannel(Channel):
    """The channel of one reader that wants nothing new while it has enough."""

    def append(self, event: SessionEvent) -> None:
        """Add an event if there is room for it, else have it counted."""
        for member in self.members:
            if not member.has_room:
                member.refuse()
                return
        super().append(event)
