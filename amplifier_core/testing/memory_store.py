"""A store that keeps everything in memory, for tests: every rule of the contract but that of outliving its process."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..errors import SessionConflict, SessionExists, SessionNotFound, StaleEpoch
from ..ids import validate_session_id
from ..storage import Delivery, Finding, SessionRecord, Trimmed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..events import SessionEvent
    from ..storage import DeliveryState
    from ..transcript import Message
    from ..triggers import TriggerEvent

_FOUND = 20
_CHANGEABLE = frozenset(each.name for each in fields(SessionRecord)) - {
    "session_id",
    "parent_id",
    "fork_of",
    "fork_at",
    "message_count",
    "updated",
}


@dataclass(slots=True)
class _History:
    """Messages as JSON: the first `shared` are the source's, which outlives its session here."""

    source: _History | None = None
    shared: int = 0
    own: list[str] = field(default_factory=list)

    def count(self) -> int:
        return self.shared + len(self.own)

    def texts(self) -> list[str]:
        parts, history, stop = [self.own], self, self.shared
        while history.source is not None:
            history = history.source
            parts.append(history.own[: max(0, stop - history.shared)])
            stop = min(stop, history.shared)
        return [text for part in reversed(parts) for text in part]


@dataclass(slots=True)
class _Kept:
    """A delivery and what only the store knows of it."""

    delivery: Delivery
    lease_until: datetime | None = None


class MemoryStore:
    """A `DurableStore` without a file: what it holds ends with it. `close` changes nothing."""

    def __init__(self) -> None:
        self._records: dict[str, SessionRecord] = {}
        self._histories: dict[str, _History] = {}
        self._log: list[SessionEvent] = []
        self._sequence = 0
        self._deliveries: dict[str, _Kept] = {}
        self._offered: set[tuple[str, str, str]] = set()
        self._states: dict[tuple[str, str], dict[str, Any]] = {}

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` and without `fork_at`, a fork of all that the source has now."""
        for session_id in (record.session_id, record.parent_id, record.fork_of):
            if session_id is not None:
                validate_session_id(session_id)
        history = _History() if record.fork_of is None else self._fork(record.fork_of, record.fork_at)
        if record.session_id in self._records:
            raise SessionExists(record.session_id)
        self._refuse_a_circle(record)
        config, metadata = _copied(record.config), _copied(record.metadata)
        fork_at = None if record.fork_of is None else history.shared
        self._records[record.session_id] = replace(record, fork_at=fork_at, config=config, metadata=metadata)
        self._histories[record.session_id] = history
        return await self.get(record.session_id)

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`. Raises `TypeError`, `ValueError` for what is not JSON."""
        record = self._record(session_id)
        texts = [json.dumps(message, allow_nan=False) for message in messages]
        history = self._histories[session_id]
        if history.count() != at:
            raise SessionConflict(session_id, f"session '{session_id}' has {history.count()} messages, not {at}")
        if texts:
            history.own += texts
            self._records[session_id] = replace(record, updated=_now())
        return history.count()

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record: any but its id, its parent, what it shares, its length and `updated`."""
        self._update(session_id, changes)

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        record = self._record(session_id)
        return deepcopy(replace(record, message_count=self._histories[session_id].count()))

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return the sessions whose id begins with `prefix`."""
        found = [await self.get(session_id) for session_id in self._records if session_id.startswith(prefix)]
        return sorted(found, key=lambda record: record.created, reverse=True)[:_FOUND]

    async def sessions(self, *, project: str | None = None, limit: int | None = None) -> list[SessionRecord]:
        """Return sessions, the last updated first."""
        records = [await self.get(session_id) for session_id in self._records]
        wanted = [record for record in records if project is None or record.project == project]
        return sorted(wanted, key=lambda record: record.updated, reverse=True)[:limit]

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages, which are the caller's own."""
        return self.read_sync(session_id, start, stop)

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do what `read` does."""
        self._record(session_id)
        return [json.loads(text) for text in self._histories[session_id].texts()[start:stop]]

    async def delete(self, session_id: str) -> None:
        """Forget a session."""
        self._record(session_id)
        del self._records[session_id], self._histories[session_id]

    async def examine(self, session_id: str) -> list[Finding]:
        """Return which sessions that this one came from are gone; nothing else goes wrong in memory."""
        record = self._record(session_id)
        found = []
        if record.parent_id and record.parent_id not in self._records:
            found.append(Finding("missing_parent", f"its parent '{record.parent_id}' is gone", "forget the parent"))
        if record.fork_of and record.fork_of not in self._records:
            gone = f"it is a fork of '{record.fork_of}', which is gone"
            found.append(Finding("missing_source", gone, "forget the source", 0))
        return found

    async def mend(self, session_id: str) -> list[Finding]:
        """Forget what is gone; the messages stay."""
        found = await self.examine(session_id)
        remedies: dict[str, dict[str, Any]] = {
            "missing_parent": {"parent_id": None},
            "missing_source": {"fork_of": None, "fork_at": None},
        }
        for finding in found:
            self._records[session_id] = replace(self._records[session_id], **remedies[finding.kind])
        return found

    async def close(self) -> None:
        """Do nothing: there is no file."""

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log."""
        return self._emitted([event])[0]

    async def events(self, *, since: int = 0, limit: int = 1000) -> list[SessionEvent]:
        """Return logged events, oldest first."""
        return deepcopy([event for event in self._log if (event.sequence or 0) > since][:limit])

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
        now: datetime | None = None,
    ) -> Delivery | None:
        """Accept an event, or record that it was refused."""
        if event.state is not None:
            self._states[project, trigger] = _copied(event.state)
        if event.dedupe_key is not None:
            key = project, lane, event.dedupe_key
            if key in self._offered:
                return None
            self._offered.add(key)
        now = now or _now()
        delivery = Delivery(
            uuid4().hex, project, lane, trigger, deepcopy(event), available_at=now, created=now, updated=now
        )
        if refused is not None:
            delivery = replace(delivery, state="refused", reason=refused)
        self._deliveries[delivery.delivery_id] = _Kept(delivery)
        return delivery

    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        """Return the state stored with the trigger's last event that had one."""
        return deepcopy(self._states.get((project, trigger), {}))

    async def save_trigger_state(self, project: str, trigger: str, state: Mapping[str, Any]) -> None:
        """Store a trigger's state without an event."""
        self._states[project, trigger] = _copied(state)

    async def claim(
        self, project: str, lane: str, *, owner: str, lease: float, session_id: str, now: datetime | None = None
    ) -> Delivery | None:
        """Take the oldest delivery that is due."""
        validate_session_id(session_id)
        now = now or _now()
        due = [kept for kept in self._deliveries.values() if _is_due(kept, project, lane, now)]
        if not due:
            return None
        kept = min(due, key=lambda each: each.delivery.available_at)
        before = kept.delivery
        kept.lease_until = now + timedelta(seconds=lease)
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
        self._claimed(delivery).lease_until = (now or _now()) + timedelta(seconds=lease)

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
    ) -> list[SessionEvent]:
        """Mark the delivery done, with what came of it; `session` may name another one by `session_id`."""
        kept = self._claimed(delivery)
        changes = dict(session or {})
        session_id = changes.pop("session_id", delivery.session_id)
        if changes:
            self._update(session_id, changes)
        self._settle(kept, state="done", reason=None)
        return self._emitted(emits)

    async def retry(self, delivery: Delivery, *, reason: str, available_at: datetime) -> None:
        """Give the delivery back."""
        self._settle(self._claimed(delivery), state="pending", reason=reason, available_at=available_at)

    async def bury(self, delivery: Delivery, *, reason: str, emits: Sequence[SessionEvent] = ()) -> list[SessionEvent]:
        """Set the delivery aside."""
        self._settle(self._claimed(delivery), state="dead", reason=reason)
        return self._emitted(emits)

    async def release(self, project: str) -> int:
        """Make every claimed delivery of `project` due now."""
        claimed = [each for each in self._deliveries.values() if each.delivery.state == "claimed"]
        released = [each for each in claimed if each.delivery.project == project]
        for kept in released:
            self._settle(kept, state="pending", available_at=min(kept.delivery.available_at, _now()))
        return len(released)

    async def deliveries(
        self,
        *,
        project: str | None = None,
        lane: str | None = None,
        state: DeliveryState | None = None,
        limit: int = 100,
    ) -> list[Delivery]:
        """Return deliveries, newest first."""
        given = {"project": project, "lane": lane, "state": state}
        wanted = {name: value for name, value in given.items() if value is not None}
        newest_first = [kept.delivery for kept in reversed(self._deliveries.values())]
        found = [each for each in newest_first if all(getattr(each, name) == value for name, value in wanted.items())]
        return found[:limit]

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

    def _fork(self, source: str, at: int | None) -> _History:
        self._record(source)
        history = self._histories[source]
        point = history.count() if at is None else at
        if not 0 <= point <= history.count():
            raise IndexError(f"fork point {point} is not within 0 and {history.count()}")
        return _History(history, point)

    def _refuse_a_circle(self, record: SessionRecord) -> None:
        above = record.parent_id
        while above is not None and above != record.session_id:
            above = self._records[above].parent_id if above in self._records else None
        if above is not None:
            raise SessionConflict(
                record.session_id,
                f"session '{record.session_id}' cannot have the parent '{record.parent_id}', which is the session "
                f"itself or descends from it. Choose another id",
            )

    def _record(self, session_id: str) -> SessionRecord:
        validate_session_id(session_id)
        if session_id not in self._records:
            raise SessionNotFound(session_id)
        return self._records[session_id]

    def _update(self, session_id: str | None, changes: Mapping[str, Any]) -> None:
        record = self._record(validate_session_id(session_id))
        for name in changes:
            if name not in _CHANGEABLE:
                raise TypeError(f"a session record has no field '{name}' that can be changed")
        self._records[record.session_id] = replace(record, **{**deepcopy(dict(changes)), "updated": _now()})

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

    def _settle(self, kept: _Kept, **changes: Any) -> None:
        kept.lease_until = None
        kept.delivery = replace(kept.delivery, **{**changes, "updated": _now()})


def _is_due(kept: _Kept, project: str, lane: str, now: datetime) -> bool:
    delivery = kept.delivery
    if (delivery.project, delivery.lane) != (project, lane) or delivery.state not in ("pending", "claimed"):
        return False
    return delivery.available_at <= now and (kept.lease_until is None or kept.lease_until <= now)


def _is_over(delivery: Delivery, before: datetime) -> bool:
    return delivery.state in ("done", "refused") and delivery.updated < before


def _size(event: SessionEvent) -> int:
    return len(json.dumps(event.data, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass"))


def _now() -> datetime:
    return datetime.now(UTC)


def _copied(value: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    return copied
