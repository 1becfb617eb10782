"""Events between sessions: published once, read by each subscriber at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.errors import AmplifierError
from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from amplifier_core.storage import Inbox

Overflow = Literal["drop_oldest", "error"]


class SubscriberLagged(AmplifierError, RuntimeError):
    """A subscriber with `overflow="error"` fell behind by more than its `queue_size`."""


class _Node:
    """One event in the shared log; what no cursor points to any more is freed with its last reader."""

    __slots__ = ("event", "next")

    def __init__(self, event: SessionEvent | None) -> None:
        self.event = event
        self.next: _Node | None = None


def matches(names: Sequence[str], name: str) -> bool:
    """Return whether `name` is one of `names`: exactly, by `*`, or by a prefix such as `work:*`."""
    return any(pattern in (name, "*") or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in names)


class Subscription(AsyncIterator[SessionEvent]):
    """One reader of the log, from the moment it was made.

    An async iterator and an async context manager. `lag` counts the matching events that wait, `dropped` those that
    were given up because more than `queue_size` waited.
    """

    def __init__(
        self,
        router: EventRouter,
        names: Sequence[str],
        sources: Sequence[str] | None,
        queue_size: int,
        overflow: Overflow,
    ) -> None:
        self.names = tuple(names)
        self.lag = 0
        self.dropped = 0
        self._sources = None if sources is None else frozenset(sources)
        self._queue_size = queue_size
        self._overflow = overflow
        self._router = router
        self._cursor = router._last
        self._skip = 0
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def wants(self, event: SessionEvent) -> bool:
        """Return whether the event is one of its own."""
        if self._sources is not None and event.source_session_id not in self._sources:
            return False
        return matches(self.names, event.name)

    def _notice(self) -> None:
        self.lag += 1
        if self.lag > self._queue_size and self._overflow == "drop_oldest":
            self.lag -= 1
            self.dropped += 1
            self._skip += 1
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> SessionEvent:
        while True:
            event = self._advance()
            if event is not None:
                return event
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _advance(self) -> SessionEvent | None:
        if self.lag > self._queue_size:
            raise SubscriberLagged(f"a subscriber to {', '.join(self.names)} is {self.lag} events behind")
        while not self._closed and self._cursor.next is not None:
            self._cursor = self._cursor.next
            event = self._cursor.event
            if event is None or not self.wants(event):
                continue
            if self._skip:
                self._skip -= 1
                continue
            self.lag -= 1
            return event
        return None

    def close(self) -> None:
        """Leave; a reader that waits ends. Idempotent."""
        self._closed = True
        self._router._subscriptions.discard(self)
        self._wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EventRouter:
    """Publish and subscribe within one process, on a shared log with a cursor for each subscriber.

    With a `store`, `emit` appends to the store's durable log first, and `follow` reads what was stored before.
    """

    def __init__(self, store: Inbox | None = None) -> None:
        self._store = store
        self._last = _Node(None)
        self._subscriptions: set[Subscription] = set()

    @property
    def subscriber_count(self) -> int:
        """How many subscriptions are open."""
        return len(self._subscriptions)

    async def emit(
        self,
        event_name: str,
        data: Mapping[str, Any],
        source_session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
    ) -> SessionEvent:
        """Publish an event with a copy of `data`, and return it; with a store, it is durable before anybody sees it."""
        event = SessionEvent(event_name, deepcopy(dict(data)), source_session_id, cause=cause, depth=depth)
        if self._store is not None:
            event = await self._store.emit(event)
        self.publish(event)
        return event

    def publish(self, event: SessionEvent) -> None:
        """Hand an event that is stored already to the subscribers."""
        node = _Node(event)
        self._last.next = node
        self._last = node
        for subscription in list(self._subscriptions):
            if subscription.wants(event):
                subscription._notice()

    def subscribe(
        self,
        event_names: Sequence[str],
        source_sessions: Sequence[str] | None = None,
        queue_size: int = 100,
        overflow: Overflow = "drop_oldest",
    ) -> Subscription:
        """Open a subscription; it sees every matching event from this call on.

        `queue_size` bounds how many events may wait; then `overflow` says whether the oldest is dropped (and counted)
        or the reader gets `SubscriberLagged`.
        """
        subscription = Subscription(self, event_names, source_sessions, queue_size, overflow)
        self._subscriptions.add(subscription)
        return subscription

    async def wait_for_event(
        self,
        event_names: Sequence[str],
        source_sessions: Sequence[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a published signature
    ) -> SessionEvent | None:
        """Return the next matching event, or None when `timeout` seconds pass without one."""
        async with self.subscribe(event_names, source_sessions) as subscription:
            try:
                async with asyncio.timeout(timeout):
                    return await anext(subscription)
            except TimeoutError:
                return None

    async def position(self) -> int:
        """Return the sequence of the newest event in the durable log, 0 when there is none."""
        return 0 if self._store is None else await self._store.last_sequence()

    async def follow(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        """Yield matching events of the durable log after `since` (None: from now), then those to come."""
        if self._store is None:
            raise SubscriberLagged("this router has no store: use subscribe()")
        cursor = await self.position() if since is None else since
        async with self.subscribe(["*"], queue_size=1) as news:
            while True:
                batch = await self._store.events(since=cursor)
                for event in batch:
                    cursor = event.sequence or cursor
                    if news_of(event, names, sources):
                        yield event
                if not batch:
                    await anext(news)

    def create_session_emitter(self, session_id: str, *, cause: str | None = None, depth: int = 0) -> SessionEmitter:
        """Return an emitter that signs events with `session_id`, and with the event that woke it."""
        return SessionEmitter(self, session_id, cause, depth)


def news_of(event: SessionEvent, names: Sequence[str], sources: Sequence[str] | None) -> bool:
    """Return whether `event` has one of `names` and comes from one of `sources` (None: any)."""
    return matches(names, event.name) and (sources is None or event.source_session_id in sources)


class SessionEmitter:
    """Emits the events of one session, which continue the chain of the event that woke it."""

    def __init__(self, router: EventRouter, session_id: str, cause: str | None = None, depth: int = 0) -> None:
        self._router = router
        self._cause = cause
        self._depth = depth
        self.session_id = session_id

    async def emit(self, event_name: str, data: Mapping[str, Any]) -> None:
        """Publish an event that names this session as its source."""
        await self._router.emit(event_name, data, self.session_id, cause=self._cause, depth=self._depth)
