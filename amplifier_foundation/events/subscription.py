"""Define a reader of events: an async iterator with `close` and figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError
from amplifier_core.events import SessionEvent
from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from .channel import Channel


class SubscriberLagged(AmplifierError, RuntimeError):
    """Wanted events are gone: the subscriber fell behind with `overflow="error"`, or asked too late."""


@frozen
class SubscriptionStats:
    """The figures of a subscription, in events."""

    names: tuple[str, ...]
    lag: int
    """Waiting events."""
    delivered: int
    dropped: int


class Subscription(AsyncIterator[SessionEvent]):
    """A reader of events: an async iterator; as an async context manager it closes at the end of the block."""

    def __init__(self, channel: Channel, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.closed = False
        self._channel = channel
        self._unread: Iterator[SessionEvent] = iter(())

    @property
    @abstractmethod
    def lag(self) -> int:
        """The number of matching events that wait."""

    @property
    @abstractmethod
    def delivered(self) -> int:
        """The number of events read."""

    @property
    def dropped(self) -> int:
        """The number of events given up because more than `queue_size` waited."""
        return 0

    @property
    def has_room(self) -> bool:
        """Whether one more may wait."""
        return True

    @property
    def stats(self) -> SubscriptionStats:
        """Its figures."""
        return SubscriptionStats(self.names, self.lag, self.delivered, self.dropped)

    def refuse(self) -> None:
        """Count an event as dropped: the queue is full."""

    def close(self) -> None:
        """Leave; a waiting reader ends. Idempotent."""
        if not self.closed:
            self.closed = True
            self._channel.leave(self)

    def __aiter__(self) -> AsyncIterator[SessionEvent]:
        return self._events()

    async def _events(self) -> AsyncIterator[SessionEvent]:
        """Yield events; a generator is resumed several times faster than `__anext__` is called and awaited."""
        while await self._ready():
            for event in self._unread:
                yield event

    async def __anext__(self) -> SessionEvent:
        while await self._ready():
            for event in self._unread:
                return event
        raise StopAsyncIteration

    @abstractmethod
    async def _ready(self) -> bool:
        """Wait for an unread event; return False when no more will come."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
