"""Keep a store for several hosts in memory: managers in one process share it in deterministic tests."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from ..clock import SystemClock
from ..errors import StaleEpoch
from ..ids import BEFORE_HOST, validate_session_id
from ..shared_stores import Lease, Presence, SharedDelivery, host_of
from .memory_documents import copy_json
from .memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from ..clock import Clock
    from ..documents import DocumentChange
    from ..events import SessionEvent
    from ..shared_stores import Bounds
    from ..storage import Admission, Delivery, SessionRecord
    from ..transcript import Message
    from ..triggers import TriggerEvent
    from .memory_rows import Kept

_OWNERS = 20


class SharedMemoryStore(MemoryStore):
    """Implement `SharedStore` and `ReceivingStore` for one event loop; its clock is the given one.

    Listeners are told of every write, their own process's too.
    """

    __slots__ = ("_fence",)  # the one attribute that a view made by `fenced` does not share

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._fence: Delivery | None = None
        self._clock = clock or SystemClock()
        self._begun: dict[tuple[str, str], list[datetime]] = {}
        self._places: dict[tuple[str, str], list[datetime]] = {}
        self._leases: dict[str, Lease] = {}
        self._present: dict[str, Presence] = {}
        self._received: set[tuple[str, str]] = set()

    async def now(self) -> datetime:
        """Return the time of the clock."""
        return self._now()

    # Writes that a fence checks.

    def fenced(self, delivery: Delivery) -> SharedMemoryStore:
        """Return a view that shares everything with this store and writes only while the claim holds."""
        view = object.__new__(type(self))
        view.__dict__ = self.__dict__
        view._fence = delivery
        return view

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session."""
        self._require_fence()
        return await super().create(record)

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`."""
        self._require_fence()
        return await super().append(session_id, messages, at=at)

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record."""
        self._require_fence()
        await super().update(session_id, **changes)

    async def delete(self, session_id: str) -> None:
        """Forget a session."""
        self._require_fence()
        await super().delete(session_id)

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log."""
        self._require_fence()
        return await super().emit(event)

    async def write_documents(
        self, changes: Sequence[DocumentChange], *, emits: Sequence[SessionEvent] = ()
    ) -> list[SessionEvent]:
        """Make all changes and append `emits` to the log."""
        self._require_fence()
        return await super().write_documents(changes, emits=emits)

    async def save_trigger_state(
        self, project: str, trigger: str, state: Mapping[str, Any], *, merge: bool = False
    ) -> None:
        """Store a trigger's state without an event, or change some keys of it."""
        self._require_fence()
        await super().save_trigger_state(project, trigger, state, merge=merge)

    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        """Append an event of another site to the log once; the ids are kept for good."""
        if (origin, event.event_id) in self._received:
            return None
        self._received.add((origin, event.event_id))
        return self._append_to_log([event])[0]

    # Deliveries.

    async def enqueue(
        self,
        project: str,
        queue: str,
        trigger: str,
        event: TriggerEvent,
        *,
        refused: str | None = None,
        admission: Admission | None = None,
        now: datetime | None = None,
        leader: Lease | None = None,
        only_on: str | None = None,
    ) -> Delivery | None:
        """Accept an event while the lease of its leader holds. Raises `StaleEpoch`."""
        if leader is not None and not self._holds(leader):
            raise StaleEpoch(leader.name, leader.epoch, "lease")
        stored = await super().enqueue(project, queue, trigger, event, refused=refused, admission=admission, now=now)
        if stored is None:
            return None
        kept = self._deliveries[stored.delivery_id]
        kept.delivery = SharedDelivery(
            **{each.name: getattr(stored, each.name) for each in fields(stored)}, only_on=only_on
        )
        return kept.delivery

    async def claim(
        self,
        project: str,
        queue: str,
        *,
        owner: str,
        lease: float,
        session_id: str,
        now: datetime | None = None,
        bounds: Bounds | None = None,
    ) -> Delivery | None:
        """Take the first due delivery that this host may claim, for `lease` seconds, within the bounds."""
        validate_session_id(session_id)
        now = now or self._now()
        due = [kept for kept in self._due(project, queue, now) if _shared(kept).only_on in (None, host_of(owner))]
        if not due or (bounds is not None and self._is_bounded(bounds, project, queue, now)):
            return None
        self._begun.setdefault((project, queue), []).append(now)
        kept = self._deliveries[self._claim_first(due, lease, session_id, now).delivery_id]
        kept.delivery = replace(_shared(kept), owners=(*_shared(kept).owners, owner)[-_OWNERS:])
        return kept.delivery

    async def reserve(self, project: str, name: str, limit: int, period: float) -> float:
        """Take the first place of a rate that keeps `limit` within any `period` seconds."""
        now, places = self._now(), self._places.setdefault((project, name), [])
        place = max(now, places[-limit] + timedelta(seconds=period)) if len(places) >= limit else now
        places.append(place)
        return (place - now).total_seconds()

    async def release(self, project: str, *, owners: Collection[str] | None = None) -> int:
        """Make the claimed deliveries of `project` due now: all, or those of these processes."""
        of_project = (kept for kept in self._claimed() if kept.delivery.project == project)
        return self._release(kept for kept in of_project if owners is None or _shared(kept).owners[-1] in owners)

    async def adopt(self, host: str, by: str) -> int:
        """Give all deliveries of a host that are not done to another host."""
        of_host = [kept for kept in self._deliveries.values() if _shared(kept).only_on == host]
        adopted = [kept for kept in of_host if kept.delivery.state != "done"]
        for kept in adopted:
            kept.delivery = replace(_shared(kept), only_on=by)
        for key in [each for each in self._states if each[1].endswith(f"{BEFORE_HOST}{host}")]:
            del self._states[key]
        self._tell()
        return len(adopted)

    # Leases of names, and processes.

    async def lead(self, name: str, *, owner: str, lease: float) -> Lease | None:
        """Take a free name, or extend the own lease, to `lease` seconds from now."""
        before, now = self._leases.get(name), self._now()
        if before is not None and before.owner != owner and before.until > now:
            return None
        epoch = before.epoch + (before.owner != owner) if before else 1
        self._leases[name] = Lease(name, owner, epoch, now + timedelta(seconds=lease))
        return self._leases[name]

    async def resign(self, lease: Lease) -> None:
        """Free the name; its next lease has a new epoch, whoever takes it."""
        if self._holds(lease):
            self._leases[lease.name] = replace(self._leases[lease.name], owner="", until=self._now())
            self._tell()

    async def leases(self) -> list[Lease]:
        """Return the leases that hold."""
        now = self._now()
        return [lease for _, lease in sorted(self._leases.items()) if lease.until > now]

    async def present(self, process: str, facts: Mapping[str, Any]) -> None:
        """Record a sign of this process."""
        before, now = self._present.get(process), self._now()
        started = before.started if before else now
        self._present[process] = Presence(process, host_of(process), started, now, copy_json(facts))

    async def absent(self, process: str) -> None:
        """Forget this process."""
        self._present.pop(process, None)

    async def processes(self) -> list[Presence]:
        """Return every process that is not forgotten, in the order of their start."""
        return sorted(self._present.values(), key=lambda each: each.started)

    # Hints.

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` after every write."""
        return self.watch_commits(told)

    def _require_fence(self) -> None:
        """Raise `StaleEpoch` once the claim of this view is over."""
        if self._fence is not None:
            self._require_claim(self._fence)

    def _now(self) -> datetime:
        return self._clock.now()

    def _holds(self, lease: Lease) -> bool:
        held = self._leases.get(lease.name)
        return held is not None and (held.owner, held.epoch) == (lease.owner, lease.epoch) and held.until > self._now()

    def _is_bounded(self, bounds: Bounds, project: str, queue: str, now: datetime) -> bool:
        """Return whether the bounds allow no further claim of this queue."""
        held = [kept for kept in self._claimed() if kept.is_held(now)]
        running = sum((kept.delivery.project, kept.delivery.queue) == (project, queue) for kept in held)
        if bounds.running is not None and running >= bounds.running:
            return True
        since = now - timedelta(seconds=bounds.period)
        begun = sum(at > since for at in self._begun.get((project, queue), ()))
        return bounds.begun is not None and begun >= bounds.begun


def _shared(kept: Kept) -> SharedDelivery:
    return cast("SharedDelivery", kept.delivery)  # `enqueue` stores no other
