"""Read the log in memory; one class for each `overflow` rule.

A reader keeps its place in a list iterator: `for event in iterator` costs nothing per event, an index 0.1 µs per event
and reader (a fourth of the whole at 1,000 readers). The iterator sees events appended to its list, and `__setstate__`
moves it, also below a running loop. CPython has that method for copies of iterators; only `_iterate_from`, `_exhaust`
and `_skip` call it.
"""

from __future__ import annotations

import asyncio
from operator import length_hint
from sys import maxsize
from typing import TYPE_CHECKING, Any, Literal

from .subscription import SubscriberLagged, Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from amplifier_core.events import SessionEvent

    from .channel import Channel

Overflow = Literal["drop_oldest", "drop_newest", "block", "error"]


def _iterate_from(events: Sequence[SessionEvent], index: int) -> Iterator[SessionEvent]:
    """Return an iterator of a list that begins at `index`."""
    iterator: Any = iter(events)
    iterator.__setstate__(index)
    return iterator  # type: ignore[no-any-return]


def _exhaust(iterator: Any) -> None:
    """End an iterator of a list, and a loop over it, also when the list grows later."""
    iterator.__setstate__(maxsize)
    next(iterator, None)


class LiveSubscription(Subscription):
    """A reader that loses the oldest events when more than `queue_size` wait.

    Invariants: `_position` + `lag` is the channel's `count`; `_begun` + `delivered` + `_skipped` is `_position`. The
    position follows from the iterator, so readers write nothing; `settle` checks the bound when the channel asks.
    """

    overflow: Overflow = "drop_oldest"

    def __init__(
        self,
        channel: Channel,
        names: Sequence[str],
        queue_size: int | None,
        report_loss: Callable[[LiveSubscription], None],
        replayed: int = 0,
    ) -> None:
        super().__init__(channel, names)
        self.queue_size = maxsize if queue_size is None else queue_size
        self.notified_at = float("-inf")
        """When the router reported its losses last, in seconds of a monotonic clock."""
        self._report_loss = report_loss
        self._replayed = replayed
        self._dropped = self._skipped = 0
        self._left_at: int | None = None
        self._block = channel.log.tail
        self._begun = channel.count - replayed
        self._events_read = self._block.events
        self._unread = _iterate_from(self._events_read, self._begun - self._block.start)
        channel.join(self)

    @property
    def _position(self) -> int:
        if self._left_at is not None:
            return self._left_at
        return self._block.start + len(self._events_read) - length_hint(self._unread)

    @property
    def _excess(self) -> int:
        """The number of events above the bound; replayed events take no place."""
        position = self._position
        allowed = self.queue_size + (self._replayed if position < self._replayed else 0)
        return self._channel.count - position - allowed

    @property
    def lag(self) -> int:
        """The number of matching events that wait."""
        self.settle()
        return 0 if self.closed else self._channel.count - self._position

    @property
    def dropped(self) -> int:
        """The number of events given up because more than `queue_size` waited."""
        self.settle()
        return self._dropped

    @property
    def delivered(self) -> int:
        """The number of events read."""
        self.settle()
        return self._position - self._begun - self._skipped

    @property
    def has_room(self) -> bool:
        """Whether one more may wait."""
        return self._excess < 0

    def settle(self) -> int:
        """Apply the overflow rule; return the channel's count at which to ask again.

        An overflowing reader is asked only now and then; its properties ask too, so no figure is ever late.
        """
        excess = self._excess
        if excess <= 0 or self.closed:
            return min(maxsize, self._channel.count - excess + 1)
        self._reduce(excess)
        return min(maxsize, self._channel.count + 1 + self.queue_size // 4)

    def close(self) -> None:
        """Leave; a waiting reader ends. Idempotent."""
        if not self.closed:
            self._left_at = self._position
            _exhaust(self._unread)
            super().close()

    def _reduce(self, excess: int) -> None:
        """Apply the overflow rule to that many events above the bound."""
        self._skip(self._position + excess)
        self._skipped += excess
        self._lose(excess)

    def _lose(self, events: int) -> None:
        self._dropped += events
        self._report_loss(self)

    def _skip(self, position: int) -> None:
        block = self._block
        while block.next is not None and position >= block.next.start:
            block = block.next
        unread: Any = self._unread
        if block is self._block:
            unread.__setstate__(position - block.start)
            return
        _exhaust(unread)
        self._block, self._events_read = block, block.events
        self._unread = _iterate_from(self._events_read, position - block.start)

    async def _events(self) -> AsyncIterator[SessionEvent]:
        while not self.closed:
            if not self._look():
                await self._channel.news()
                continue
            for event in self._unread:
                yield event

    async def _ready(self) -> bool:
        while not self.closed:
            if self._look():
                return True
            await self._channel.news()
        return False

    def _look(self) -> bool:
        """Apply the overflow rule where it may be due; return whether an event is unread."""
        waiting = length_hint(self._unread) or self._advance()
        if waiting > self.queue_size or (waiting and self._block.next is not None):
            self.settle()  # may skip events, or close
            return not self.closed
        return waiting > 0

    def _advance(self) -> int:
        """Begin to read what follows an exhausted iterator; return the number of unread events in its block."""
        position = len(self._events_read)
        if self._block.next is not None:
            self._block, position = self._block.next, 0
            self._events_read = self._block.events
        self._unread = _iterate_from(self._events_read, position)  # an exhausted iterator does not see new events
        return len(self._events_read) - position


class ContentSubscription(LiveSubscription):
    """A reader that takes no new event while `queue_size` events wait."""

    overflow = "drop_newest"

    def refuse(self) -> None:
        """Count an event as dropped: the queue is full."""
        self._lose(1)


class StrictSubscription(LiveSubscription):
    """A reader that ends with `SubscriberLagged` when more than `queue_size` events wait."""

    overflow = "error"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._fault: SubscriberLagged | None = None
        super().__init__(*args, **kwargs)

    def _reduce(self, excess: int) -> None:
        behind = self._channel.count - self._position
        self._fault = SubscriberLagged(
            f"a subscriber to {', '.join(self.names)} is {behind} events behind, and {self.queue_size} may wait: "
            "read faster, raise queue_size, or subscribe with another overflow"
        )
        self.close()
        self._lose(behind)

    _events = Subscription._events  # it asks `_ready`, which raises the error

    async def _ready(self) -> bool:
        ready = await super()._ready()
        if self._fault is not None:
            raise self._fault
        return ready

    @property
    def dropped(self) -> int:
        """The number of events that waited when it ended with `SubscriberLagged`."""
        self.settle()
        return self._dropped


class BlockingSubscription(LiveSubscription):
    """A reader that makes `EventRouter.emit` wait while `queue_size` events wait."""

    overflow = "block"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._room: set[asyncio.Future[None]] = set()
        super().__init__(*args, **kwargs)

    def _reduce(self, excess: int) -> None:
        """Keep all of them: events published without waiting are not lost either."""

    async def room(self) -> None:
        """Wait until an event is read, or the reader leaves."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.add(waiter)
        try:
            await waiter
        finally:
            self._room.discard(waiter)

    def close(self) -> None:
        """Leave; a waiting reader ends, and so does the wait for it. Idempotent."""
        super().close()
        self._let_in()

    async def _events(self) -> AsyncIterator[SessionEvent]:
        while await self._ready():
            for event in self._unread:
                self._let_in()
                yield event

    async def __anext__(self) -> SessionEvent:
        event = await super().__anext__()
        self._let_in()
        return event

    def _let_in(self) -> None:
        for waiter in self._room:
            if not waiter.done():
                waiter.set_result(None)


_KINDS: dict[Overflow, type[LiveSubscription]] = {
    kind.overflow: kind for kind in (LiveSubscription, ContentSubscription, BlockingSubscription, StrictSubscription)
}


def kind_of(overflow: Overflow) -> type[LiveSubscription]:
    """Return the kind of reader for a rule. Raises `ValueError` for an unknown one."""
    if overflow not in _KINDS:
        raise ValueError(f"overflow: must be one of {', '.join(_KINDS)}, not {overflow!r}")
    return _KINDS[overflow]
