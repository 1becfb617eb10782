"""The router: whoever emits, and whoever subscribed, within one process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any, TypeGuard

from amplifier_core.clock import Clock, SystemClock
from amplifier_core.events import SessionEvent

from .channel import BoundedChannel, Channel
from .fresh import fresh_event
from .frozen import FrozenDict, freeze
from .live import KINDS, BlockingSubscription, LiveSubscription
from .names import OVERFLOW, Filter, NameIndex
from .stored import StoredSubscription
from .subscription import SubscriberLagged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from concurrent.futures import Future

    from amplifier_core.storage import Inbox

    from .live import Overflow
    from .subscription import Subscription, SubscriptionStats

logger = logging.getLogger(__name__)

HISTORY = 1_000
"""Events that a router without a store can replay."""
ROUTES = 1_024
"""Pairs of name and source whose channels are remembered."""
PAUSE = 1.0
"""Seconds between two notices of the losses of one subscriber, at the least."""


class EventRouter:
    """Publish and subscribe within one process, on a shared log with a cursor for each subscriber.

    With a `store`, `emit` appends to the store's durable log first; without one, the router numbers the events itself
    and keeps the newest `history` of them for `subscribe(since=…)`. Its methods are called in the event loop that it is
    used in; `emit_threadsafe` from anywhere.

    >>> import asyncio
    >>> async def example() -> None:
    ...     router = EventRouter()
    ...     async with router.subscribe(["work:*"]) as subscription:
    ...         await router.emit("work:completed", {"task_id": "123"}, source_session_id="abc")
    ...         async for event in subscription:
    ...             print(event.name, event.data, event.source_session_id)
    ...             break
    >>> asyncio.run(example())
    work:completed {'task_id': '123'} abc
    """

    def __init__(self, store: Inbox | None = None, *, history: int = HISTORY, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._seconds = time if clock is None else lambda: clock.now().timestamp()
        self._number = count(1).__next__
        self._history: deque[SessionEvent] = deque(maxlen=max(1, history))
        self._channels: dict[Filter | Channel, Channel] = {}
        self._index: NameIndex[Channel] = NameIndex()
        self._routes: dict[tuple[str, str | None], tuple[Channel, ...]] = {}
        self._waits = store is not None
        self._closed = False
        self._loop = _running_loop()

    @property
    def subscriptions(self) -> list[Subscription]:
        """Those that are open."""
        return [member for channel in list(self._channels.values()) for member in list(channel.members)]

    @property
    def subscriber_count(self) -> int:
        """How many subscriptions are open."""
        return len(self.subscriptions)

    @property
    def stats(self) -> list[SubscriptionStats]:
        """How each open subscription fares."""
        return [subscription.stats for subscription in self.subscriptions]

    async def emit(
        self,
        event_name: str,
        data: Mapping[str, Any],
        source_session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
    ) -> SessionEvent:
        """Publish an event with a copy of `data` that nobody can change, and return it.

        With a store, it is durable before anybody sees it. It returns at once but for subscribers with
        `overflow="block"`, who are waited for.
        """
        number = self._number()
        event = fresh_event(event_name, freeze(data), source_session_id, self._seconds(), cause, depth, number)
        if self._waits:
            event = await self._wait(event)
        self._history.append(event)
        route = self._routes.get((event_name, source_session_id))
        for channel in self._route(event) if route is None else route:
            channel.append(event)
        return event

    def publish(self, event: SessionEvent) -> None:
        """Hand an event that is stored already to the subscribers, and wait for none."""
        event = _with_frozen_data(event)
        self._history.append(event)
        for channel in self._route(event):
            channel.append(event)

    def emit_threadsafe(
        self,
        event_name: str,
        data: Mapping[str, Any],
        source_session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
    ) -> Future[SessionEvent]:
        """Emit from any thread; the future ends when `emit` would, and `data` is copied before this returns.

        Raises `RuntimeError` where the router was neither made nor subscribed to in a loop that runs.
        """
        if self._loop is None or self._loop.is_closed():
            raise RuntimeError("the router is used in no event loop that runs: make it in one")
        emitting = self.emit(event_name, freeze(data), source_session_id, cause=cause, depth=depth)
        return asyncio.run_coroutine_threadsafe(emitting, self._loop)

    def subscribe(
        self,
        event_names: Sequence[str],
        source_sessions: Sequence[str] | None = None,
        queue_size: int | None = 100,
        overflow: Overflow = "drop_oldest",
        *,
        since: int | None = None,
    ) -> Subscription:
        """Open a subscription; it sees every matching event from this call on, or after the sequence `since`.

        Names match exactly, by prefix (`work:*`) or all of them (`*`). `queue_size` bounds how many events may wait
        (None: any number); then `overflow` says whether the oldest or the newest is dropped and counted, whether
        `emit` waits, or whether the reader gets `SubscriberLagged`. A subscriber of `router:overflow` is told of
        drops, at most once a second for each subscriber that had some; `*` alone does not ask for that.

        With `since`, a router with a store reads its log and drops nothing. One without raises `SubscriberLagged`
        where its history begins later.
        """
        if self._closed:
            raise RuntimeError("the router is closed")
        wanted = Filter.of(event_names, source_sessions)
        if queue_size is not None and queue_size < 1:
            raise ValueError(f"queue_size: {queue_size} events cannot wait; give 1 or more, or None for no bound")
        self._loop = _running_loop() or self._loop
        if since is not None and self._store is not None:
            return StoredSubscription(self._channel(wanted), event_names, self._store, since)
        replayed = [] if since is None else self._replay(wanted, since)
        kind = KINDS[overflow]
        self._waits = self._waits or kind is BlockingSubscription
        own = overflow == "drop_newest" or wanted.wants_notices or bool(replayed)
        channel = self._own_channel(wanted, overflow, replayed) if own else self._channel(wanted)
        return kind(channel, event_names, queue_size, self._tell, len(replayed))

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
            raise RuntimeError("this router has no store: use subscribe()")
        cursor = await self.position() if since is None else since
        async with self.subscribe(names, sources, since=cursor) as reader:
            while (event := await anext(reader, None)) is not None:
                yield event

    def create_session_emitter(self, session_id: str, *, cause: str | None = None, depth: int = 0) -> SessionEmitter:
        """Return an emitter that signs events with `session_id`, and with the event that woke it."""
        return SessionEmitter(self, session_id, cause, depth)

    def close(self) -> None:
        """End every subscription and take no more; what is emitted still goes to the store. Idempotent."""
        self._closed = True
        for subscription in self.subscriptions:
            subscription.close()

    def _channel(self, wanted: Filter) -> Channel:
        channel = self._channels.get(wanted)
        return self._open(wanted, Channel(wanted, self._forget)) if channel is None else channel

    def _own_channel(self, wanted: Filter, overflow: Overflow, replayed: Sequence[SessionEvent]) -> Channel:
        kind = BoundedChannel if overflow == "drop_newest" else Channel
        channel = kind(wanted, self._forget, backlog=replayed)
        return self._open(channel, channel)

    def _open(self, key: Filter | Channel, channel: Channel) -> Channel:
        self._channels[key] = channel
        self._index.add(channel.filter.names, channel)
        self._routes.clear()
        return channel

    def _forget(self, channel: Channel) -> None:
        key = channel.filter if self._channels.get(channel.filter) is channel else channel
        if self._channels.pop(key, None) is not None:
            self._index.discard(channel.filter.names, channel)
            self._routes.clear()

    def _route(self, event: SessionEvent) -> tuple[Channel, ...]:
        """Return the channels whose filters the event passes."""
        route = tuple(channel for channel in self._index.find(event.name) if channel.filter.wants(event))
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        self._routes[event.name, event.source_session_id] = route
        return route

    async def _wait(self, event: SessionEvent) -> SessionEvent:
        """Store the event, then wait until every blocking subscriber to it has room."""
        if self._store is not None:
            event = _with_frozen_data(await self._store.emit(replace(event, sequence=None)))
        route = self._route(event)
        while full := [member for channel in route for member in channel.members if _is_full(member)]:
            await full[0].room()
        return event

    def _replay(self, wanted: Filter, since: int) -> list[SessionEvent]:
        kept = [event for event in self._history if event.sequence is not None]
        first = kept[0].sequence if kept else None
        if first is not None and first > since + 1:
            raise SubscriberLagged(
                f"the events {since + 1} to {first - 1} are not kept any more: subscribe earlier, give the router a "
                "longer history, or a store"
            )
        return [event for event in kept if (event.sequence or 0) > since and wanted.wants(event)]

    def _tell(self, reader: LiveSubscription) -> None:
        """Log that a subscriber lost events, and tell who asked for that; once in a while is enough."""
        now = self._clock.monotonic()
        if now - reader.told_at < PAUSE:
            return
        reader.told_at = now
        names, dropped = list(reader.names), reader.dropped
        logger.warning("a subscriber to %s is too slow: %d events dropped", ", ".join(names), dropped)
        data = {"names": names, "overflow": reader.overflow, "dropped": dropped, "queue_size": reader.queue_size}
        notice = SessionEvent(OVERFLOW, freeze(data), timestamp=self._clock.now())
        for channel in self._index.find(OVERFLOW):
            if channel.filter.wants_notices and channel.filter.sources is None:
                channel.notice(notice)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _with_frozen_data(event: SessionEvent) -> SessionEvent:
    return event if event.data.__class__ is FrozenDict else replace(event, data=freeze(event.data))


def _is_full(subscription: Subscription) -> TypeGuard[BlockingSubscription]:
    return isinstance(subscription, BlockingSubscription) and not subscription.has_room


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
