"""Share one log, and one place to wait for news, between the subscriptions with the same filter."""

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


_FEW = 8
"""Waiters that are kept without a look at whether they wait still."""


class Channel:
    """The events of one filter.

    Invariants: `events` is the list of the newest block, and `push` adds to it. Who pushes calls `attend` when `events`
    holds `attend_at` events or more: 0 while a reader waits, else where a block is full or a reader may overflow.
    """

    def __init__(
        self, wanted: Filter, forget: Callable[[Channel], None], *, backlog: Sequence[SessionEvent] = ()
    ) -> None:
        self.filter = wanted
        self.members: WeakSet[Subscription] = WeakSet()
        self.log = Log(backlog)
        self._forget = forget
        self._waiters: list[asyncio.Future[None]] = []
        self._most_waiters = _FEW
        self._due: list[tuple[int, int, ref[LiveSubscription]]] = []
        self._serial = count()
        self._full_at = self._settle_at = max(BLOCK, len(backlog))
        self._write_to_tail()

    @property
    def count(self) -> int:
        """The number of events so far, and the position of the next one."""
        return self.log.tail.start + len(self.events)

    def append(self, event: SessionEvent) -> None:
        """Add an event, and wake the waiting readers."""
        self.push(event)
        if len(self.events) >= self.attend_at:
            self.attend()

    def attend(self) -> None:
        """Apply the overflow rules that are due, begin a block when one is full, and wake the waiting readers."""
        if self.count >= self._settle_at:
            self._settle_members()
        if self._waiters:
            self.wake()
        self.attend_at = self._settle_at - self.log.tail.start

    def notice(self, event: SessionEvent) -> None:
        """Add a notice of the router if every reader has room: a notice takes no event's place."""
        if all(member.has_room for member in self.members):
            self.append(event)

    def join(self, member: LiveSubscription) -> None:
        """Take in a reader, and have it settle again when `count` reaches the answer of its `settle`."""
        self.members.add(member)
        self._watch(member.settle(), next(self._serial), ref(member))

    def leave(self, member: Subscription) -> None:
        """Let a reader go; the router forgets a channel without readers."""
        self.members.discard(member)
        self.wake()
        if not self.members:
            self._forget(self)

    def wake(self) -> None:
        """Wake the waiting readers, once, however many events come before they run."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def news(self) -> asyncio.Future[None]:
        """Return a future for the next event, or for the next reader to leave."""
        if len(self._waiters) >= self._most_waiters:  # some may have given up waiting
            self._waiters = [waiter for waiter in self._waiters if not waiter.done()]
            self._most_waiters = 2 * len(self._waiters) + _FEW
        waiter: asyncio.Future[None] = asyncio.Future()
        self._waiters.append(waiter)
        self.attend_at = 0
        return waiter

    def _write_to_tail(self) -> None:
        self.events = self.log.tail.events
        self.push: Callable[[SessionEvent], None] = self.events.append
        self.attend_at = self._settle_at - self.log.tail.start

    def _watch(self, due: int, serial: int, member: ref[LiveSubscription]) -> None:
        if due < maxsize:
            heappush(self._due, (due, serial, member))
            self._settle_at = min(self._settle_at, due)
            self.attend_at = min(self.attend_at, self._settle_at - self.log.tail.start)

    def _settle_members(self) -> None:
        if self.count >= self._full_at:
            self.log.begin_block(self.count)
            self._write_to_tail()
            self._full_at = self.count + BLOCK
            if not self.members:
                self._forget(self)
        self._settle_at = self._full_at
        while self._due and self._due[0][0] <= self.count:
            _, serial, member = heappop(self._due)
            reader = member()
            if reader is not None and not reader.closed:
                self._watch(reader.settle(), serial, member)
        if self._due:
            self._settle_at = min(self._settle_at, self._due[0][0])


class BoundedChannel(Channel):
    """The channel of one reader; it takes no new event while the reader's queue is full."""

    def _write_to_tail(self) -> None:
        super()._write_to_tail()
        self.push = self._push_if_room

    def _push_if_room(self, event: SessionEvent) -> None:
        for member in self.members:
            if not member.has_room:
                member.refuse()
                return
        self.events.append(event)
