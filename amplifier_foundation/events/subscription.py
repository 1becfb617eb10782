"""What every reader of events is: an async iterator that can be closed, and says how it fares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError
from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from .channel import Channel


class SubscriberLagged(AmplifierError, RuntimeError):
    """Events are gone that a subscriber asked for: it fell behind with `overflow="error"`, or asked too late."""


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """How a subscription fares, in events."""

    names: tuple[str, ...]
    lag: int
    """Those that wait."""
    delivered: int
    dropped: int


class Subscription(AsyncIterator[SessionEvent]):
    """A reader of events: an async iterator, and an async context manager that closes it."""

    def __init__(self, channel: Channel, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.closed = False
        self._channel = channel
        self._unread: Iterator[SessionEvent] = iter(())

    @property
    @abstractmethod
    def lag(self) -> int:
        """How many matching events wait."""

    @property
    @abstractmethod
    def delivered(self) -> int:
        """How many events were read."""

    @property
    def dropped(self) -> int:
        """How many events were given up because more than `queue_size` waited."""
        return 0

    @property
    def has_room(self) -> bool:
        """Whether one more may wait."""
        return True

    @property
    def stats(self) -> SubscriptionStats:
        """How it fares."""
        return SubscriptionStats(self.names, self.lag, self.delivered, self.dropped)

    def refuse(self) -> None:
        """Count an event that there was no room for."""

    def close(self) -> None:
        """Leave; a reader that waits ends. Idempotent."""
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
        """Wait until something is unread; return False when nothing more will come."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
