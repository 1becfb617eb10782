"""Route events from emitters to subscribers within one process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeGuard

from amplifier_core.clock import Clock, SystemClock
from amplifier_core.events import SessionEvent
from amplifier_core.late_fields import EventDraft

from .channel import BoundedChannel, Channel
from .emitting import SessionEmitter, find_event
from .frozen import ATOMS, FrozenDict, freeze, freeze_values
from .live import BlockingSubscription, LiveSubscription, kind_of
from .looking import LogLook
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
"""Events kept by a router without a store, for replay."""
ROUTES = 1_024
"""Names, and pairs of name and source, with remembered channels."""
PAUSE = 1.0
"""Seconds between two notices of the losses of one subscriber, at the least."""


class EventRouter:
    """Publish and subscribe within one process, on a shared log with a cursor for each subscriber.

    With a `store`, `emit` appends to the store's durable log first; without one, the router numbers the events itself
    and keeps the newest `history` of them for `subscribe(since=…)`. Call its methods in its event loop, and
    `emit_threadsafe` from anywhere.

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
        self._store, self._look = store, LogLook(store) if store is not None else None
        self._clock = clock or SystemClock()
        self._moment = time_ns if type(self._clock) is SystemClock else self._clock.now
        self._sequence = 0
        self._history: deque[SessionEvent] = deque(maxlen=max(1, history))
        self._channels: dict[Filter | Channel, Channel] = {}
        self._index: NameIndex[Channel] = NameIndex()
        self._routes: dict[str, tuple[Channel, ...]] = {}
        self._routes_by_source: dict[tuple[str, str | None], tuple[Channel, ...]] = {}
        self._waits = store is not None
        self._closed = False
        self._loop = _running_loop()

    @property
    def subscriptions(self) -> list[Subscription]:
        """The open subscriptions."""
        return [member for channel in list(self._channels.values()) for member in list(channel.members)]

    @property
    def subscriber_count(self) -> int:
        """The number of open subscriptions."""
        return len(self.subscriptions)

    @property
    def stats(self) -> list[SubscriptionStats]:
        """The figures of each open subscription."""
        return [subscription.stats for subscription in self.subscriptions]

    async def emit(
        self,
        event_name: str,
        data: Mapping[str, Any],
        source_session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
        project: str | None = None,
        event_id: str | None = None,
    ) -> SessionEvent:
        """Publish an event with a copy of `data` that nobody can change, and return it.

        With a store, it is durable before anybody sees it. Only subscribers with `overflow="block"` make it wait.
        Triggers hear the events of their own `project`, and those without one. The event gets the id `event_id`,
        or one of its own where the store has an event with that.
        """
        if data.__class__ is not FrozenDict:  # `freeze`, without the call
            data = FrozenDict(data)
            for value in data.values():
                if type(value) not in ATOMS:
                    data = freeze_values(data)
                    break
        event: Any = EventDraft()  # `new_event`, without the call
        event.name = event_name
        event.data = data
        event.source_session_id = source_session_id
        event.timestamp = self._moment()
        event.cause = cause
        event.depth = depth
        event.sequence = self._sequence = self._sequence + 1
        event.project = project
        if event_id is not None and await find_event(self._store, event_id) is None:
            event.event_id = event_id
        event.__class__ = SessionEvent
        if self._waits:
            event = await self._wait(event)
        self._history.append(event)
        route = self._routes.get(event_name)
        for channel in self._route(event) if route is None else route:
            channel.push(event)  # `Channel.append`, without the call
            if len(channel.events) >= channel.attend_at:
                channel.attend()
        return event  # type: ignore[no-any-return]

    def publish(self, event: SessionEvent) -> None:
        """Hand a stored event to the subscribers, and wait for none."""
        route = self._route(event)
        self._note(event)
        if self._store is not None and not route:
            return  # the store has it for whoever subscribes later
        event = _with_frozen_data(event)
        if self._store is None:  # its number in another log means nothing here
            self._sequence += 1
            event = replace(event, sequence=self._sequence)
        self._history.append(event)
        for channel in route:
            channel.append(event)

    def emit_threadsafe(
        self,
        event_name: str,
        data: Mapping[str, Any],
        source_session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
        project: str | None = None,
    ) -> Future[SessionEvent]:
        """Emit from any thread; the future ends when `emit` would, and `data` is copied before this returns.

        Raises `RuntimeError` for a router neither made nor subscribed to in a running loop.
        """
        if self._loop is None or self._loop.is_closed():
            raise RuntimeError("the router belongs to no running event loop: make it in one")
        emitting = self.emit(event_name, freeze(data), source_session_id, cause=cause, depth=depth, project=project)
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

        Names match exactly, by prefix (`work:*`) or all of them (`*`). `source_sessions` are ids of sessions or names
        of background sessions. `queue_size` bounds the waiting events (None: any number). Beyond it, `overflow`
        drops and counts the oldest or the newest, has `emit` wait, or raises `SubscriberLagged` in the reader. A
        subscriber of `router:overflow` gets a notice of drops, at most one a second for each losing subscriber; `*`
        alone does not ask for it.

        With `since`, a router with a store reads its log and drops nothing. One without raises `SubscriberLagged` when
        its history begins later. Raises `ValueError` for an unknown `overflow`, and `RuntimeError` when it is closed.
        """
        if self._closed:
            raise RuntimeError("the router is closed")
        wanted = Filter.of(event_names, source_sessions)
        if queue_size is not None and queue_size < 1:
            raise ValueError(f"queue_size: {queue_size} events cannot wait; give 1 or more, or None for no bound")
        kind = kind_of(overflow)
        self._loop = _running_loop() or self._loop
        if since is not None and self._store is not None and self._look is not None:
            return StoredSubscription(self._channel(wanted), event_names, self._store, since, self._look)
        replayed = [] if since is None else self._replay(wanted, since)
        self._waits = self._waits or kind is BlockingSubscription
        own = overflow == "drop_newest" or wanted.wants_notices or bool(replayed)
        channel = self._own_channel(wanted, overflow, replayed) if own else self._channel(wanted)
        return kind(channel, event_names, queue_size, self._report_loss, len(replayed))

    async def wait_for_event(
        self,
        event_names: Sequence[str],
        source_sessions: Sequence[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a published signature
    ) -> SessionEvent | None:
        """Return the next matching event, or None when `timeout` seconds pass without one.

        Raises `RuntimeError` when the router is closed, also meanwhile.
        """
        async with self.subscribe(event_names, source_sessions) as subscription:
            try:
                async with asyncio.timeout(timeout):
                    event = await anext(subscription, None)
            except TimeoutError:
                return None
            if event is None:
                raise RuntimeError("the router is closed")
            return event

    async def position(self) -> int:
        """Return the sequence of the newest event, 0 when there is none."""
        if self._store is not None:
            return await self._store.last_sequence()
        return (self._history[-1].sequence or 0) if self._history else 0

    def look_again(self) -> None:
        """Have the followers of the durable log look for events that other processes stored."""
        for channel in list(self._channels.values()):
            channel.wake()

    async def is_read(self) -> bool:
        """Return whether every follower of the durable log has read its events."""
        return all([await each.is_read() for each in self.subscriptions if isinstance(each, StoredSubscription)])

    def follow_log(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        """Do as `follow` does; after `since` in a store, by a subscription that tells what it has `passed`."""
        if since is not None and self._store is not None:
            return self.subscribe(names, sources, None, since=since)
        return self.follow(names, sources=sources, since=since)

    async def follow(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        """Yield matching events after `since` (None: from now), then new ones.

        A router without a store begins with the oldest event of its history when that is later; a warning says so.
        """
        cursor = await self.position() if since is None else since
        try:
            subscription = self.subscribe(names, sources, None, since=cursor)
        except SubscriberLagged as lag:
            logger.warning("%s", lag)
            subscription = self.subscribe(names, sources, None, since=(self._history[0].sequence or 1) - 1)
        async with subscription as reader:
            while (event := await anext(reader, None)) is not None:
                yield event

    def create_session_emitter(
        self, session_id: str, *, cause: str | None = None, depth: int = 0, project: str | None = None
    ) -> SessionEmitter:
        """Return an emitter for the events of `session_id`, which continue the chain of `cause`."""
        return SessionEmitter(self, session_id, cause, depth, project)

    def close(self) -> None:
        """End every subscription and take no more; emitted events still go to the store. Idempotent."""
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
        self._forget_routes()
        return channel

    def _forget(self, channel: Channel) -> None:
        key = channel.filter if self._channels.get(channel.filter) is channel else channel
        if self._channels.pop(key, None) is not None:
            self._index.discard(channel.filter.names, channel)
            self._forget_routes()

    def _route(self, event: SessionEvent) -> tuple[Channel, ...]:
        """Return the channels of the filters that the event passes.

        The answer is remembered by name, and by source too where a filter has sources: a filter must look at nothing
        else of an event.
        """
        name, source = event.name, event.source_session_id
        route = self._routes.get(name)
        route = self._routes_by_source.get((name, source)) if route is None else route
        if route is None:
            found = list(self._index.find(name))
            route = tuple(channel for channel in found if channel.filter.wants(event))
            if len(self._routes) + len(self._routes_by_source) >= ROUTES:
                self._forget_routes()
            if all(channel.filter.sources is None for channel in found):
                self._routes[name] = route
            else:
                self._routes_by_source[name, source] = route
        return route

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._routes_by_source.clear()

    def _note(self, event: SessionEvent) -> None:
        if self._look is not None:
            self._look.note(event.sequence)

    async def _wait(self, event: SessionEvent) -> SessionEvent:
        """Store the event, then wait until every blocking subscriber has room."""
        if self._store is not None:
            event = _with_frozen_data(await self._store.emit(replace(event, sequence=None)))
            self._note(event)
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

    def _report_loss(self, reader: LiveSubscription) -> None:
        """Log that a subscriber lost events, and publish a notice; at most once in `PAUSE`."""
        now = self._clock.monotonic()
        if now - reader.notified_at < PAUSE:
            return
        reader.notified_at = now
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
