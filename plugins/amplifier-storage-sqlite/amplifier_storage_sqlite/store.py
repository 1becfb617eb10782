"""The store: what `amplifier_core.storage` asks for, each method one write that is awaited or one read."""

from __future__ import annotations

import asyncio
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from amplifier_core.ids import validate_session_id
from amplifier_core.storage import Delivery, SessionRecord

from . import care, inbox, sessions
from .copying import back_up
from .opening import open_store
from .reader import Reader
from .rows import DELIVERIES, EVENTS, SESSIONS, encode
from .values import Column, dumps, micros, moment, plain, unplain
from .writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Admission, DeliveryState, Finding, Tally, Trimmed
    from amplifier_core.transcript import Message
    from amplifier_core.triggers import TriggerEvent

T = TypeVar("T")

SMALL = 64
"""Rows that are read on the event loop; more are read in a thread, which takes longer and holds nobody up."""

_FOUND = 20
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,128}")
_CHANGEABLE = frozenset(field.name for field in fields(SessionRecord)) - {
    "session_id",
    "parent_id",
    "fork_of",
    "fork_at",
    "message_count",
    "updated",
}


class SqliteStore:
    """A `DurableStore` in one SQLite file; usable from any thread and any event loop, by several processes at once.

    Open one with `open_sqlite`. After `close`, everything raises `StoreUnavailable`.
    """

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.path = path
        self._writer = Writer(open_store(path, busy_timeout), path)
        self._reader = Reader(path, busy_timeout)
        self._long_reader = Reader(path, busy_timeout)  # of its own, so that a long read holds up no short one

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` and without `fork_at`, a fork of all that the source has now."""
        for session_id in (record.session_id, record.parent_id, record.fork_of):
            if session_id is not None:
                validate_session_id(session_id)
        row = SESSIONS.row(record)
        return await self._writer.run(lambda db: sessions.create(db, row))

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`. Raises `TypeError`, naming the place, for what is not JSON."""
        validate_session_id(session_id)
        bodies = [dumps(message, f"messages[{index}]") for index, message in enumerate(messages)]
        return await self._writer.run(lambda db: sessions.append(db, session_id, bodies, at, _now()))

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record: any but its id, its parent, what it shares, its length and `updated`."""
        validate_session_id(session_id)
        columns = _session_changes(changes)
        await self._writer.run(lambda db: sessions.update(db, session_id, columns))

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        validate_session_id(session_id)
        return self._reader.run(lambda db: sessions.get(db, session_id))

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return the sessions whose id begins with `prefix`; none for what no id can begin with."""
        if not _PREFIX.fullmatch(prefix):
            return []
        return self._reader.run(lambda db: sessions.find(db, prefix, _FOUND))

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions, the last updated first."""
        wanted = _wanted({"project": project, "parent_id": parent_id})
        return await self._read(limit, lambda db: sessions.listed(db, wanted, limit))

    async def spent_sessions(self, *, before: datetime, keep: int = 0, limit: int = 1000) -> list[str]:
        """Return the ids of sessions that events woke and nobody needs, the oldest first."""
        return await self._read(None, lambda db: sessions.spent(db, micros(before), keep, limit))

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages. Raises `StoreDamaged` when one is missing, or is not what was written."""
        validate_session_id(session_id)
        end = self._reader.run(lambda db: sessions.length(db, session_id)) if stop is None else stop
        return await self._read(end - max(0, start), lambda db: sessions.read(db, session_id, start, stop))

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do what `read` does, however many messages there are, in the calling thread."""
        validate_session_id(session_id)
        return self._reader.run(lambda db: sessions.read(db, session_id, start, stop))

    async def delete(self, session_id: str) -> None:
        """Forget a session, and its messages but those that forks share."""
        validate_session_id(session_id)
        await self._writer.run(lambda db: sessions.delete(db, session_id))

    async def examine(self, session_id: str) -> list[Finding]:
        """Read the whole session and return what is wrong with it. Raises `StoreDamaged` when its record is."""
        validate_session_id(session_id)
        return await self._read(None, lambda db: care.examine(db, session_id))

    async def mend(self, session_id: str) -> list[Finding]:
        """Cut a history before its first bad message, and forget a parent or a source that is gone."""
        validate_session_id(session_id)
        return await self._writer.run(lambda db: care.mend(db, session_id, _now()))

    async def backup(self, path: Path) -> None:
        """Copy the store as it is now, while it is used, to a file that is not there yet. Raises `StoreUnavailable`."""
        await asyncio.to_thread(back_up, self.path, path)

    async def close(self) -> None:
        """Finish what was begun and close the file; idempotent."""
        await asyncio.to_thread(self._close)

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log."""
        rows = [EVENTS.row(event)]
        return _in_sequence([event], await self._writer.run(lambda db: inbox.emit(db, rows)))[0]

    async def events(
        self, *, since: int = 0, limit: int = 1000, source_session_id: str | None = None
    ) -> list[SessionEvent]:
        """Return logged events, oldest first."""
        size = min(limit, await self.last_sequence() - since)
        wanted = _wanted({"source_session_id": source_session_id})
        return await self._read(size, lambda db: inbox.events(db, since, limit, wanted))

    async def find_events(self, prefix: str) -> list[SessionEvent]:
        """Return the logged events whose id begins with `prefix`; none for what no id can begin with."""
        if not _PREFIX.fullmatch(prefix):
            return []
        return self._reader.run(lambda db: inbox.find_events(db, prefix, _FOUND))

    async def last_sequence(self) -> int:
        """Return the sequence of the newest event."""
        return self._reader.run(inbox.last_sequence)

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
        now = now or _now()
        delivery = Delivery(uuid4().hex, project, lane, trigger, event, available_at=now, created=now, updated=now)
        if admission is not None:
            delivery = replace(delivery, key=admission.key, priority=admission.priority)
        if refused is not None:
            delivery = replace(delivery, state="refused", reason=refused)
        row = {**DELIVERIES.row(delivery), **_looked_up(event)}
        state = None if event.state is None else dumps(event.state, "state")
        stored = await self._writer.run(lambda db: inbox.offer(db, row, state, admission))
        if stored is None or admission is None:
            return delivery if stored else None
        return _as_stored(delivery, stored)

    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        """Return the state stored with the trigger's last event that had one."""
        columns = plain(project, "project"), plain(trigger, "trigger")
        return self._reader.run(lambda db: inbox.trigger_state(db, *columns))

    async def save_trigger_state(self, project: str, trigger: str, state: Mapping[str, Any]) -> None:
        """Store a trigger's state without an event."""
        columns = plain(project, "project"), plain(trigger, "trigger"), dumps(state, "state")
        await self._writer.run(lambda db: inbox.save_trigger_state(db, *columns))

    async def claim(
        self, project: str, lane: str, *, owner: str, lease: float, session_id: str, now: datetime | None = None
    ) -> Delivery | None:
        """Take a delivery that is due."""
        validate_session_id(session_id)
        now = now or _now()
        values = encode({"project": project, "lane": lane, "owner": owner, "session_id": session_id})
        values |= {"now": micros(now), "lease_until": _lease_end(now, lease)}
        return await self._writer.run(lambda db: inbox.claim(db, values))

    async def renew(self, delivery: Delivery, *, lease: float, now: datetime | None = None) -> None:
        """Extend the lease, as long as nobody else has claimed the delivery since."""
        changes: dict[str, Column] = {"lease_until": _lease_end(now or _now(), lease)}
        await self._writer.run(lambda db: inbox.advance(db, delivery, changes))

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
    ) -> list[SessionEvent]:
        """Mark the delivery done, with what came of it; `session` may name another one by `session_id`."""
        return await self._finish(delivery, {"state": "done", "reason": None}, emits, session)

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
        await self._finish(delivery, changes, (), session)

    async def bury(
        self,
        delivery: Delivery,
        *,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
    ) -> list[SessionEvent]:
        """Set the delivery aside."""
        return await self._finish(delivery, {"state": "dead", "reason": reason}, emits, session)

    async def _finish(
        self,
        delivery: Delivery,
        changes: Mapping[str, Any],
        emits: Sequence[SessionEvent],
        session: Mapping[str, Any] | None,
    ) -> list[SessionEvent]:
        of_session = dict(session or {})
        session_id = of_session.pop("session_id", delivery.session_id)
        if of_session:
            validate_session_id(session_id)
        columns = _session_changes(of_session) if of_session else None
        rows = [EVENTS.row(event) for event in emits]
        changed = encode({**changes, "lease_until": 0, "updated": _now()})
        finished = await self._writer.run(lambda db: inbox.finish(db, delivery, changed, rows, session_id, columns))
        return _in_sequence(emits, finished)

    async def release(self, project: str) -> int:
        """Make every claimed delivery of `project` due now."""
        column = plain(project, "project")
        return await self._writer.run(lambda db: inbox.release(db, column, micros(_now())))

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
        given = {"project": project, "lane": lane, "state": state}
        given |= {"event_id": event_id, "session_id": session_id, "cause": cause}
        wanted = _wanted(given)
        return await self._read(limit, lambda db: inbox.deliveries(db, wanted, limit))

    async def find_deliveries(self, prefix: str) -> list[Delivery]:
        """Return the deliveries of which an id begins with `prefix`; none for what no id can begin with."""
        if not _PREFIX.fullmatch(prefix):
            return []
        return self._reader.run(lambda db: inbox.find_deliveries(db, prefix, _FOUND))

    async def next_due(self, project: str, lane: str, *, now: datetime | None = None) -> datetime | None:
        """Return when the next pending one of a lane comes due."""
        wanted, after = encode({"project": project, "lane": lane}), micros(now or _now())
        return self._reader.run(lambda db: inbox.next_due(db, wanted, after))

    async def tallies(self, *, project: str | None = None, lane: str | None = None) -> list[Tally]:
        """Return how the deliveries of each trigger fare."""
        wanted = _wanted({"project": project, "lane": lane})
        return await self._read(None, lambda db: inbox.tallies(db, wanted))

    async def redeliver(self, delivery_id: str, *, now: datetime | None = None) -> Delivery:
        """Make one that is dead, refused or skipped due again, in the place that it had among those of its key."""
        column, due = plain(delivery_id, "delivery_id"), micros(now or _now())
        return await self._writer.run(lambda db: inbox.redeliver(db, column, due))

    async def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Skip one that is pending or dead."""
        columns = plain(delivery_id, "delivery_id"), plain(reason, "reason")
        return await self._writer.run(lambda db: inbox.drop(db, *columns, micros(_now())))

    async def trim(self, *, before: datetime, event_bytes: int = 0) -> Trimmed:
        """Forget what is over; the file keeps its size, and what is written next takes the room that is free."""
        return await self._writer.run(lambda db: inbox.trim(db, micros(before), event_bytes))

    async def _read(self, size: int | None, query: Callable[[sqlite3.Connection], T]) -> T:
        if size is not None and size <= SMALL:
            return self._reader.run(query)
        return await asyncio.to_thread(self._long_reader.run, query)

    def _close(self) -> None:
        self._reader.close()
        self._long_reader.close()
        self._writer.close()  # last: whoever closes the file last folds the write-ahead log into it


def _now() -> datetime:
    return datetime.now(UTC)


def _lease_end(now: datetime, lease: float) -> int:
    return micros(now + timedelta(seconds=lease))


def _looked_up(event: TriggerEvent) -> dict[str, Column]:
    """Return what deliveries are found by, of their events."""
    return {name: plain(getattr(event, name), name) for name in ("dedupe_key", "event_id", "cause")}


def _as_stored(delivery: Delivery, row: Mapping[str, Any]) -> Delivery:
    due = moment(row["available_at"])
    return replace(delivery, state=row["state"], reason=unplain(row["reason"]), available_at=due)


def _wanted(given: Mapping[str, str | None]) -> dict[str, Column]:
    return encode({name: value for name, value in given.items() if value is not None})


def _session_changes(changes: Mapping[str, Any]) -> dict[str, Column]:
    for name in changes:
        if name not in _CHANGEABLE:
            raise TypeError(f"a session record has no field '{name}' that can be changed")
    return encode({**changes, "updated": _now()})


def _in_sequence(events: Sequence[SessionEvent], sequences: Sequence[int]) -> list[SessionEvent]:
    return [replace(event, sequence=sequence) for event, sequence in zip(events, sequences, strict=True)]
