"""Keep the inbox of the store in memory: the log of events, and the deliveries in the order of their arrival."""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..errors import DeliveryConflict, DeliveryNotFound, StaleEpoch
from ..ids import validate_session_id
from ..storage import Admission, Delivery, Purged
from ..storage_records import CLOCK_SLACK, DELETED, empty_texts
from .memory_documents import MemoryDocuments, copy_json, has
from .memory_rows import Kept, count_states, merge_state, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ..documents import DocumentChange
    from ..events import SessionEvent
    from ..storage import DeliveryCounts, DeliveryState
    from ..triggers import TriggerEvent

_PLAIN = Admission()
_FORGETTABLE = ("done", "refused", "skipped")
_FOUND = 20


class MemoryInbox(MemoryDocuments):
    """Implement `Inbox` without a file: one half of a store; the other half changes the records of sessions."""

    def __init__(self) -> None:
        super().__init__()
        self._log: list[SessionEvent] = []
        self._sequence = 0
        self._deliveries: dict[str, Kept] = {}
        self._dedupe_keys: set[tuple[str, str, str]] = set()
        self._states: dict[tuple[str, str], dict[str, Any]] = {}

    @abstractmethod
    def _update(self, session_id: str | None, changes: Mapping[str, Any]) -> None: ...

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log."""
        return self._append_to_log([event])[0]

    async def events(
        self, *, since: int = 0, limit: int = 1000, source_session_id: str | None = None
    ) -> list[SessionEvent]:
        """Return logged events, oldest first."""
        later = (event for event in self._log if (event.sequence or 0) > since)
        return deepcopy([event for event in later if has(event, {"source_session_id": source_session_id})][:limit])

    async def find_events(self, prefix: str) -> list[SessionEvent]:
        """Return logged events with ids beginning with `prefix`."""
        found = (event for event in self._log if event.event_id.startswith(prefix))
        return deepcopy(sorted(found, key=lambda event: event.event_id)[:_FOUND])

    async def last_sequence(self) -> int:
        """Return the sequence of the newest event."""
        return self._sequence

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
    ) -> Delivery | None:
        """Accept an event, or record its refusal."""
        if event.state is not None:
            self._save_state(project, trigger, event.state)
        if event.state_changes is not None:
            self._save_state(project, trigger, event.state_changes, merge=True)
        event = replace(deepcopy(event), state=None, state_changes=None)
        if event.dedupe_key is not None:
            key = project, queue, event.dedupe_key
            if key in self._dedupe_keys:
                return None
            self._dedupe_keys.add(key)
        admission, came = admission or _PLAIN, now or self._now()
        delivery = Delivery(uuid4().hex, project, queue, trigger, event, available_at=came, created=came, updated=came)
        delivery = replace(delivery, key=admission.key, priority=admission.priority)
        if refused is None:
            kept = self._admit(delivery, admission)
        else:
            kept = Kept(replace(delivery, state="refused", reason=refused))
        self._deliveries[delivery.delivery_id] = kept
        self._tell()
        return kept.delivery

    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        """Return a trigger's state with all changes."""
        return deepcopy(self._states.get((project, trigger), {}))

    async def save_trigger_state(
        self, project: str, trigger: str, state: Mapping[str, Any], *, merge: bool = False
    ) -> None:
        """Store a trigger's state without an event, or change some keys of it."""
        self._save_state(project, trigger, state, merge=merge)

    async def claim(
        self, project: str, queue: str, *, owner: str, lease: float, session_id: str, now: datetime | None = None
    ) -> Delivery | None:
        """Take the due delivery with the highest priority."""
        validate_session_id(session_id)
        now = now or self._now()
        due = self._due(project, queue, now)
        return self._claim_first(due, lease, session_id, now) if due else None

    async def renew(self, delivery: Delivery, *, lease: float, now: datetime | None = None) -> None:
        """Extend the lease."""
        self._require_claim(delivery).lease_until = (now or self._now()) + timedelta(seconds=lease)

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Mark the delivery done, with its results; `session` may name another one by `session_id`."""
        return self._finish(delivery, emits, session, documents, state="done", reason=None)

    async def nack(
        self,
        delivery: Delivery,
        *,
        reason: str,
        available_at: datetime,
        counted: bool = True,
        session: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> None:
        """Give the delivery back."""
        attempts = delivery.attempts if counted else delivery.attempts - 1
        changes = {"state": "pending", "reason": reason, "available_at": available_at, "attempts": attempts}
        self._advance(delivery, session, **changes, updated=now or self._now())

    async def dead_letter(
        self,
        delivery: Delivery,
        *,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Set the delivery aside."""
        return self._finish(delivery, emits, session, documents, state="dead", reason=reason)

    async def release(self, project: str) -> int:
        """Make every claimed delivery of `project` due now."""
        return self._release(each for each in self._claimed() if each.delivery.project == project)

    async def deliveries(
        self,
        *,
        project: str | None = None,
        queue: str | None = None,
        state: DeliveryState | None = None,
        event_id: str | None = None,
        session_id: str | None = None,
        cause: str | None = None,
        limit: int = 100,
    ) -> list[Delivery]:
        """Return deliveries, newest first."""
        of_it = {"project": project, "queue": queue, "state": state, "session_id": session_id}
        of_event = {"event_id": event_id, "cause": cause}
        newest_first = [kept.delivery for kept in reversed(self._deliveries.values())]
        found = [each for each in newest_first if has(each, of_it) and has(each.event, of_event)]
        return found[:limit]

    async def find_deliveries(self, prefix: str) -> list[Delivery]:
        """Return deliveries with an id beginning with `prefix`: their own, the event's or the session's."""
        every = [kept.delivery for kept in reversed(self._deliveries.values())]
        by_id = [each for each in every if each.delivery_id.startswith(prefix)][:_FOUND]
        by_event = [each for each in every if each.event.event_id.startswith(prefix)][:_FOUND]
        by_session = [each for each in every if (each.session_id or "").startswith(prefix)][:_FOUND]
        return [each for each in every if any(each in kind for kind in (by_id, by_event, by_session))]

    async def next_due(self, project: str, queue: str, *, now: datetime | None = None) -> datetime | None:
        """Return when the next pending one of a queue comes due."""
        after, place = now or self._now(), {"project": project, "queue": queue, "state": "pending"}
        later = [kept for kept in self._deliveries.values() if kept.delivery.available_at > after]
        waiting = (kept.delivery for kept in later if has(kept.delivery, place) and not self._is_behind(kept))
        return min((each.available_at for each in waiting), default=None)

    async def due_queues(self, project: str, *, now: datetime | None = None) -> set[str]:
        """Return the queues of a project with a delivery to claim."""
        due = now or self._now()
        queues = {kept.delivery.queue for kept in self._deliveries.values() if kept.is_open()}
        return {queue for queue in queues if self._due(project, queue, due)}

    async def delivery_counts(self, *, project: str | None = None, queue: str | None = None) -> list[DeliveryCounts]:
        """Return how the deliveries of each trigger fare."""
        groups: dict[tuple[str, str, str], list[Delivery]] = {}
        for each in (kept.delivery for kept in self._deliveries.values()):
            if has(each, {"project": project, "queue": queue}):
                groups.setdefault((each.project, each.queue, each.trigger), []).append(each)
        return [count_states(*names, groups[names]) for names in sorted(groups)]

    async def redeliver(self, delivery_id: str, *, now: datetime | None = None) -> Delivery:
        """Make a dead, refused or skipped delivery due again, in its old place among those with its key."""
        kept = self._in_state(delivery_id, ("dead", "refused", "skipped"), "delivered again")
        kept.settle_key = None
        due = now or self._now()
        self._change(kept, state="pending", attempts=0, reason=None, available_at=due, updated=due)
        return kept.delivery

    async def make_due(self, delivery_id: str, *, now: datetime | None = None) -> bool:
        """Make a pending delivery due now."""
        due = now or self._now()
        kept = self._deliveries.get(delivery_id)
        if kept is None or kept.delivery.state != "pending" or kept.delivery.available_at <= due:
            return False
        self._change(kept, available_at=due, updated=due)
        return True

    async def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Skip a pending or dead delivery."""
        kept = self._in_state(delivery_id, ("pending", "dead"), "dropped")
        self._change(kept, state="skipped", reason=reason)
        return kept.delivery

    async def purge(self, *, before: datetime, event_bytes: int = 0) -> Purged:
        """Delete old finished deliveries and the oldest events."""
        every = (kept.delivery for kept in self._deliveries.values())
        finished = [each for each in every if each.state in _FORGETTABLE and each.updated < before]
        for delivery in finished:
            del self._deliveries[delivery.delivery_id]
            self._dedupe_keys.discard((delivery.project, delivery.queue, delivery.event.dedupe_key or ""))
        size = sum(map(size_of, self._log))
        events = 0
        while events < len(self._log) and size > event_bytes and self._log[events].timestamp < before:
            size -= size_of(self._log[events])
            events += 1
        del self._log[:events]
        self._tell()
        return Purged(len(finished), events)

    def _forget_texts(self, session_id: str) -> None:
        """Empty the texts of the events and finished deliveries of a deleted session."""
        for at, event in enumerate(self._log):
            if event.source_session_id == session_id:
                self._log[at] = replace(event, data=empty_texts(event.data))
        for kept in self._deliveries.values():
            if kept.delivery.session_id == session_id and kept.delivery.state in _FORGETTABLE:
                kept.delivery = replace(kept.delivery, event=replace(kept.delivery.event, data=DELETED))

    def _admit(self, delivery: Delivery, admission: Admission) -> Kept:
        """Make room for a new delivery, and return it as it is to be kept."""
        settled = self._settling(delivery, admission)
        rivals = [kept for kept in self._deliveries.values() if kept.is_open() and kept.is_of_key(delivery)]
        if admission.overlap == "skip" and any(kept not in settled for kept in rivals):
            return Kept(
                replace(delivery, state="skipped", reason="an earlier delivery with the same key is unfinished")
            )
        if admission.overlap == "replace":
            self._skip(rivals, f"replaced by event {delivery.event.event_id}", delivery.created)
        self._skip(settled, f"settled into event {delivery.event.event_id}", delivery.created)
        if admission.settle_key is None:
            return Kept(delivery)
        first = min((kept.settling_since or delivery.created for kept in settled), default=delivery.created)
        due = delivery.created + timedelta(seconds=admission.settle)
        if admission.settle_within is not None:
            due = min(due, first + timedelta(seconds=admission.settle_within))
        return Kept(replace(delivery, available_at=due), None, admission.settle_key, first)

    def _settling(self, delivery: Delivery, admission: Admission) -> list[Kept]:
        """Return the deliveries still settling: the new one takes their place."""
        place = {"project": delivery.project, "queue": delivery.queue, "state": "pending"}
        return [
            kept
            for kept in self._deliveries.values()
            if admission.settle_key is not None
            and kept.settle_key == admission.settle_key
            and kept.delivery.available_at > delivery.created
            and has(kept.delivery, place)
        ]

    def _due(self, project: str, queue: str, now: datetime) -> list[Kept]:
        return [kept for kept in self._deliveries.values() if self._is_due(kept, project, queue, now)]

    def _claim_first(self, due: Sequence[Kept], lease: float, session_id: str, now: datetime) -> Delivery:
        """Claim the delivery with the highest priority, then the longest due."""
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
        self._tell()
        return kept.delivery

    def _is_due(self, kept: Kept, project: str, queue: str, now: datetime) -> bool:
        delivery = kept.delivery
        if not kept.is_open() or not has(delivery, {"project": project, "queue": queue}):
            return False
        if delivery.available_at > now >= delivery.updated - CLOCK_SLACK or kept.is_held(now):
            return False
        rivals = (other for other in self._deliveries.values() if other is not kept and other.is_of_key(delivery))
        return not self._is_behind(kept) and not any(other.is_held(now) for other in rivals)

    def _is_behind(self, kept: Kept) -> bool:
        """Return whether an earlier delivery with the same key is unfinished."""
        before = takewhile(lambda other: other is not kept, self._deliveries.values())
        return any(other.is_open() and other.is_of_key(kept.delivery) for other in before)

    def _finish(
        self,
        delivery: Delivery,
        emits: Sequence[SessionEvent],
        session: Mapping[str, Any] | None,
        documents: Sequence[DocumentChange],
        **changes: Any,
    ) -> list[SessionEvent]:
        self._require_claim(delivery)
        changed = self._change_documents(documents)
        self._advance(delivery, session, **changes)
        self._documents, self._searched = changed
        return self._append_to_log(emits)

    def _advance(self, delivery: Delivery, session: Mapping[str, Any] | None, **changes: Any) -> None:
        """Change a delivery claimed under this epoch, and its session's record."""
        kept = self._require_claim(delivery)
        of_session = dict(session or {})
        session_id = of_session.pop("session_id", delivery.session_id)
        if of_session:
            self._update(session_id, of_session)
        self._change(kept, **changes)

    def _change(self, kept: Kept, **changes: Any) -> None:
        kept.lease_until = None
        kept.delivery = replace(kept.delivery, **{"updated": self._now(), **changes})
        self._tell()

    def _skip(self, all_kept: Iterable[Kept], reason: str, now: datetime) -> None:
        for kept in all_kept:
            self._change(kept, state="skipped", reason=reason, updated=now)

    def _claimed(self) -> list[Kept]:
        return [kept for kept in self._deliveries.values() if kept.delivery.state == "claimed"]

    def _release(self, claimed: Iterable[Kept]) -> int:
        """Make claimed deliveries due now; return their number."""
        released = list(claimed)
        for kept in released:
            self._change(kept, state="pending", available_at=min(kept.delivery.available_at, self._now()))
        return len(released)

    def _save_state(self, project: str, trigger: str, state: Mapping[str, Any], *, merge: bool = False) -> None:
        kept = self._states.get((project, trigger), {})
        self._states[project, trigger] = merge_state(kept, copy_json(state)) if merge else copy_json(state)
        self._tell()

    def _append_to_log(self, events: Sequence[SessionEvent]) -> list[SessionEvent]:
        logged = [replace(event, sequence=number) for number, event in enumerate(events, self._sequence + 1)]
        self._log += deepcopy(logged)
        self._sequence += len(logged)
        self._tell()
        return logged

    def _require_claim(self, delivery: Delivery) -> Kept:
        kept = self._deliveries.get(delivery.delivery_id)
        if kept is None or kept.delivery.state != "claimed" or kept.delivery.epoch != delivery.epoch:
            raise StaleEpoch(delivery.delivery_id, delivery.epoch)
        return kept

    def _in_state(self, delivery_id: str, states: Sequence[DeliveryState], what: str) -> Kept:
        kept = self._deliveries.get(delivery_id)
        if kept is None:
            raise DeliveryNotFound(delivery_id)
        if kept.delivery.state not in states:
            raise DeliveryConflict(delivery_id, kept.delivery.state, what)
        return kept
