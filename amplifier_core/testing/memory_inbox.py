"""The inbox of the store in memory: the log of events, and the deliveries in the order in which they came."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..errors import DeliveryConflict, DeliveryNotFound, StaleEpoch
from ..ids import validate_session_id
from ..storage import Admission, Delivery, Tally, Trimmed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..events import SessionEvent
    from ..storage import DeliveryState
    from ..triggers import TriggerEvent

_PLAIN = Admission()
_OPEN = ("pending", "claimed")
_FOUND = 20


@dataclass(slots=True)
class _Kept:
    """A delivery and what only the store knows of it."""

    delivery: Delivery
    lease_until: datetime | None = None
    settle_key: str | None = None
    settling_since: datetime | None = None

    def is_open(self) -> bool:
        return self.delivery.state in _OPEN

    def is_held(self, now: datetime) -> bool:
        return self.delivery.state == "claimed" and self.lease_until is not None and self.lease_until > now

    def is_of_key(self, delivery: Delivery) -> bool:
        mine = self.delivery
        return mine.key is not None and (mine.key, mine.lane, mine.project) == (
            delivery.key,
            delivery.lane,
            delivery.project,
        )


class MemoryInbox(ABC):
    """An `Inbox` without a file, to be one half of a store; the other half changes the records of sessions."""

    def __init__(self) -> None:
        self._log: list[SessionEvent] = []
        self._sequence = 0
        self._deliveries: dict[str, _Kept] = {}
        self._offered: set[tuple[str, str, str]] = set()
        self._states: dict[tuple[str, str], dict[str, Any]] = {}

    @abstractmethod
    def _update(self, session_id: str | None, changes: Mapping[str, Any]) -> None: ...

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log."""
        return self._emitted([event])[0]

    async def events(
        self, *, since: int = 0, limit: int = 1000, source_session_id: str | None = None
    ) -> list[SessionEvent]:
        """Return logged events, oldest first."""
        later = (event for event in self._log if (event.sequence or 0) > since)
        return deepcopy([event for event in later if has(event, {"source_session_id": source_session_id})][:limit])

    async def find_events(self, prefix: str) -> list[SessionEvent]:
        """Return the logged events whose id begins with `prefix`."""
        found = (event for event in self._log if event.event_id.startswith(prefix))
        return deepcopy(sorted(found, key=lambda event: event.event_id)[:_FOUND])

    async def last_sequence(self) -> int:
        """Return the sequence of the newest event."""
        return self._sequence

    async def offer(
        self,
        project: str,
        lane: str,
        trigger: str,
        event: TriggerEvent,
        *,
        refused: str | None = None,
        admission: Admission | None = None,
        now: datetime | None = None,
    ) -> Delivery | None:
        """Accept an event, or record that it was refused."""
        if event.state is not None:
            self._states[project, trigger] = copied(event.state)
        if event.dedupe_key is not None:
            key = project, lane, event.dedupe_key
            if key in self._offered:
                return None
            self._offered.add(key)
        admission, came = admission or _PLAIN, now or utc_now()
        delivery = Delivery(
            uuid4().hex, project, lane, trigger, deepcopy(event), available_at=came, created=came, updated=came
        )
        delivery = replace(delivery, key=admission.key, priority=admission.priority)
        if refused is None:
            kept = self._admitted(delivery, admission)
        else:
            kept = _Kept(replace(delivery, state="refused", reason=refused))
        self._deliveries[delivery.delivery_id] = kept
        return kept.delivery

    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        """Return the state stored with the trigger's last event that had one."""
        return deepcopy(self._states.get((project, trigger), {}))

    async def save_trigger_state(self, project: str, trigger: str, state: Mapping[str, Any]) -> None:
        """Store a trigger's state without an event."""
        self._states[project, trigger] = copied(state)

    async def claim(
        self, project: str, lane: str, *, owner: str, lease: float, session_id: str, now: datetime | None = None
    ) -> Delivery | None:
        """Take a delivery that is due."""
        validate_session_id(session_id)
        now = now or utc_now()
        due = [kept for kept in self._deliveries.values() if self._is_due(kept, project, lane, now)]
        if not due:
            return None
        kept = min(due, key=lambda each: (-each.delivery.priority, each.delivery.available_at))
        before = kept.delivery
        kept.lease_until, kept.settle_key = now + timedelta(seconds=lease), None
        kept.delivery = replace(
            before,
            state="claimed",
            attempts=before.attempts + 1,
            epoch=before.epoch + 1,
            session_id=before.session_id or session_id,
            updated=now,
        )
        return kept.delivery

    async def renew(self, delivery: Delivery, *, lease: float, now: datetime | None = None) -> None:
        """Extend the lease."""
        self._claimed(delivery).lease_until = (now or utc_now()) + timedelta(seconds=lease)

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
    ) -> list[SessionEvent]:
        """Mark the delivery done, with what came of it; `session` may name another one by `session_id`."""
        self._advance(delivery, session, state="done", reason=None)
        return self._emitted(emits)

    async def retry(
        self,
        delivery: Delivery,
        *,
        reason: str,
        available_at: datetime,
        counted: bool = True,
        session: Mapping[str, Any] | None = None,
    ) -> None:
        """Give the delivery back."""
        attempts = delivery.attempts if counted else delivery.attempts - 1
        changes = {"state": "pending", "reason": reason, "available_at": available_at, "attempts": attempts}
        self._advance(delivery, session, **changes)

    async def bury(
        self,
        delivery: Delivery,
        *,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
    ) -> list[SessionEvent]:
        """Set the delivery aside."""
        self._advance(delivery, session, state="dead", reason=reason)
        return self._emitted(emits)

    async def release(self, project: str) -> int:
        """Make every claimed delivery of `project` due now."""
        claimed = [each for each in self._deliveries.values() if each.delivery.state == "claimed"]
        released = [each for each in claimed if each.delivery.project == project]
        for kept in released:
            _change(kept, state="pending", available_at=min(kept.delivery.available_at, utc_now()))
        return len(released)

    async def deliveries(
        self,
        *,
        project: str | None = None,
        lane: str | None = None,
        state: DeliveryState | None = None,
        event_id: str | None = None,
        session_id: str | None = None,
        cause: str | None = None,
        limit: int = 100,
    ) -> list[Delivery]:
        """Return deliveries, newest first."""
        of_it = {"project": project, "lane": lane, "state": state, "session_id": session_id}
        of_event = {"event_id": event_id, "cause": cause}
        newest_first = [kept.delivery for kept in reversed(self._deliveries.values())]
        found = [each for each in newest_first if has(each, of_it) and has(each.event, of_event)]
        return found[:limit]

    async def find_deliveries(self, prefix: str) -> list[Delivery]:
        """Return the deliveries whose own id, or whose event's or session's, begins with `prefix`."""
        every = [kept.delivery for kept in reversed(self._deliveries.values())]
        by_id = [each for each in every if each.delivery_id.startswith(prefix)][:_FOUND]
        by_event = [each for each in every if each.event.event_id.startswith(prefix)][:_FOUND]
        by_session = [each for each in every if (each.session_id or "").startswith(prefix)][:_FOUND]
        return [each for each in every if any(each in kind for kind in (by_id, by_event, by_session))]

    async def next_due(self, project: str, lane: str, *, now: datetime | None = None) -> datetime | None:
        """Return when the next pending one of a lane comes due."""
        after, place = now or utc_now(), {"project": project, "lane": lane, "state": "pending"}
        later = [kept for kept in self._deliveries.values() if kept.delivery.available_at > after]
        waiting = (kept.delivery for kept in later if has(kept.delivery, place) and not self._is_behind(kept))
        return min((each.available_at for each in waiting), default=None)

    async def tallies(self, *, project: str | None = None, lane: str | None = None) -> list[Tally]:
        """Return how the deliveries of each trigger fare."""
        groups: dict[tuple[str, str, str], list[Delivery]] = {}
        for each in (kept.delivery for kept in self._deliveries.values()):
            if has(each, {"project": project, "lane": lane}):
                groups.setdefault((each.project, each.lane, each.trigger), []).append(each)
        return [_tally(*names, groups[names]) for names in sorted(groups)]

    async def redeliver(self, delivery_id: str, *, now: datetime | None = None) -> Delivery:
        """Make one that is dead, refused or skipped due again, in the place that it had among those of its key."""
        kept = self._in_state(delivery_id, ("dead", "refused", "skipped"), "delivered again")
        kept.settle_key = None
        due = now or utc_now()
        _change(kept, state="pending", attempts=0, reason=None, available_at=due, updated=due)
        return kept.delivery

    async def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Skip one that is pending or dead."""
        kept = self._in_state(delivery_id, ("pending", "dead"), "dropped")
        _change(kept, state="skipped", reason=reason)
        return kept.delivery

    async def trim(self, *, before: datetime, event_bytes: int = 0) -> Trimmed:
        """Forget what is over."""
        over = [each for each in (kept.delivery for kept in self._deliveries.values()) if _is_over(each, before)]
        for delivery in over:
            del self._deliveries[delivery.delivery_id]
            self._offered.discard((delivery.project, delivery.lane, delivery.event.dedupe_key or ""))
        size = sum(map(_size, self._log))
        events = 0
        while events < len(self._log) and size > event_bytes and self._log[events].timestamp < before:
            size -= _size(self._log[events])
            events += 1
        del self._log[:events]
        return Trimmed(len(over), events)

    def _admitted(self, delivery: Delivery, admission: Admission) -> _Kept:
        """Make room for a new delivery, and return it as it is to be kept."""
        settled = self._settling(delivery, admission)
        rivals = [kept for kept in self._deliveries.values() if kept.is_open() and kept.is_of_key(delivery)]
        if admission.overlap == "skip" and any(kept not in settled for kept in rivals):
            return _Kept(replace(delivery, state="skipped", reason="an earlier one of its key is not over"))
        if admission.overlap == "replace":
            _skip(rivals, f"replaced by event {delivery.event.event_id}", delivery.created)
        _skip(settled, f"settled into event {delivery.event.event_id}", delivery.created)
        if admission.settle_key is None:
            return _Kept(delivery)
        first = min((kept.settling_since or delivery.created for kept in settled), default=delivery.created)
        due = delivery.created + timedelta(seconds=admission.settle)
        if admission.settle_within is not None:
            due = min(due, first + timedelta(seconds=admission.settle_within))
        return _Kept(replace(delivery, available_at=due), None, admission.settle_key, first)

    def _settling(self, delivery: Delivery, admission: Admission) -> list[_Kept]:
        """Return the deliveries in whose place this one comes, because they have not settled yet."""
        place = {"project": delivery.project, "lane": delivery.lane, "state": "pending"}
        return [
            kept
            for kept in self._deliveries.values()
            if admission.settle_key is not None
            and kept.settle_key == admission.settle_key
            and kept.delivery.available_at > delivery.created
            and has(kept.delivery, place)
        ]

    def _is_due(self, kept: _Kept, project: str, lane: str, now: datetime) -> bool:
        delivery = kept.delivery
        if not kept.is_open() or not has(delivery, {"project": project, "lane": lane}):
            return False
        if delivery.available_at > now or kept.is_held(now):
            return False
        rivals = (other for other in self._deliveries.values() if other is not kept and other.is_of_key(delivery))
        return not self._is_behind(kept) and not any(other.is_held(now) for other in rivals)

    def _is_behind(self, kept: _Kept) -> bool:
        """Return whether an earlier one of its key is not over."""
        before = takewhile(lambda other: other is not kept, self._deliveries.values())
        return any(other.is_open() and other.is_of_key(kept.delivery) for other in before)

    def _advance(self, delivery: Delivery, session: Mapping[str, Any] | None, **changes: Any) -> None:
        """Change a delivery that is claimed under this epoch, and its session's record."""
        kept = self._claimed(delivery)
        of_session = dict(session or {})
        session_id = of_session.pop("session_id", delivery.session_id)
        if of_session:
            self._update(session_id, of_session)
        _change(kept, **changes)

    def _emitted(self, events: Sequence[SessionEvent]) -> list[SessionEvent]:
        logged = [replace(event, sequence=number) for number, event in enumerate(events, self._sequence + 1)]
        self._log += deepcopy(logged)
        self._sequence += len(logged)
        return logged

    def _claimed(self, delivery: Delivery) -> _Kept:
        kept = self._deliveries.get(delivery.delivery_id)
        if kept is None or kept.delivery.state != "claimed" or kept.delivery.epoch != delivery.epoch:
            raise StaleEpoch(delivery.delivery_id, delivery.epoch)
        return kept

    def _in_state(self, delivery_id: str, states: Sequence[DeliveryState], what: str) -> _Kept:
        kept = self._deliveries.get(delivery_id)
        if kept is None:
            raise DeliveryNotFound(delivery_id)
        if kept.delivery.state not in states:
            raise DeliveryConflict(delivery_id, kept.delivery.state, what)
        return kept


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def copied(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy as of JSON. Raises `TypeError`, `ValueError` for what is not JSON."""
    copy: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    return copy


def _change(kept: _Kept, **changes: Any) -> None:
    kept.lease_until = None
    kept.delivery = replace(kept.delivery, **{"updated": utc_now(), **changes})


def _skip(all_kept: Iterable[_Kept], reason: str, now: datetime) -> None:
    for kept in all_kept:
        _change(kept, state="skipped", reason=reason, updated=now)


def has(item: object, wanted: Mapping[str, object]) -> bool:
    """Return whether an item has these values; None is any."""
    return all(value is None or getattr(item, name) == value for name, value in wanted.items())


def _tally(project: str, lane: str, trigger: str, all_of_it: Sequence[Delivery]) -> Tally:
    counts: Counter[DeliveryState] = Counter(each.state for each in all_of_it)
    waiting = min((each.created for each in all_of_it if each.state in _OPEN), default=None)
    return Tally(project, lane, trigger, dict(counts), max(each.created for each in all_of_it), waiting)


def _is_over(delivery: Delivery, before: datetime) -> bool:
    return delivery.state in ("done", "refused", "skipped") and delivery.updated < before


def _size(event: SessionEvent) -> int:
    return len(json.dumps(event.data, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass"))
