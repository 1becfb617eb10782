"""Implement `amplifier_core.storage.DurableStore`: each method awaits one write or one read."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core.ids import validate_session_id
from amplifier_core.storage import Delivery, check_changes

from . import inbox, integrity, sessions
from .document_store import SqliteDocuments
from .opening import open_store, place_of
from .purging import purge
from .reader import Reader, in_event_loop
from .rows import DELIVERIES, EVENTS, SESSIONS, encode, encode_state, new_delivery_id, number_events
from .values import Column, dumps, micros, moment, plain, unplain
from .view_store import SqliteViews
from .writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from amplifier_core.documents import DocumentChange
    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Admission, DeliveryCounts, DeliveryState, Finding, Purged, SessionRecord
    from amplifier_core.transcript import Message
    from amplifier_core.triggers import TriggerEvent

    from .administration import SqliteAdministration

T = TypeVar("T")

SMALL = 64
"""Most rows read on the event loop; a thread reads more: it takes longer and blocks nobody."""
_FOUND = 20
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,128}")


class SqliteStore(SqliteDocuments, SqliteViews):
    """A `DurableStore` in one SQLite file; usable from any thread and any event loop, by several processes at once.

    It keeps documents too. Open one with `open_sqlite`. After `close`, everything raises `StoreUnavailable`.
    """

    reads_without_loop = True
    """Reads and `close` need no event loop: without one they run in the calling thread."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.path, self._writer = path, Writer(open_store(path, busy_timeout), path)
        self._busy_timeout, self._place = busy_timeout, place_of(path)
        self._reader = Reader(path, busy_timeout, self._writer)
        self._long_reader = Reader(path, busy_timeout)  # its own connection: a long read blocks no short one

    @cached_property
    def administration(self) -> SqliteAdministration:
        """The administration of its file; `StoreUnavailable` says that the file was removed or replaced meanwhile."""
        from .administration import SqliteAdministration

        return SqliteAdministration(self.path, self._busy_timeout, self._place)

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` but no `fork_at`, fork the whole source."""
        for session_id in (record.session_id, record.parent_id, record.fork_of):
            if session_id is not None:
                validate_session_id(session_id)
        row = SESSIONS.row(record)
        return await self._writer.run(lambda db: sessions.create(db, row), row.values())

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`. Raises `TypeError`, naming the place, for a value without a JSON form."""
        validate_session_id(session_id)
        bodies = [dumps(message, f"messages[{index}]") for index, message in enumerate(messages)]
        return await self._writer.run(lambda db: sessions.append(db, session_id, bodies, at, _now()), bodies)

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record."""
        validate_session_id(session_id)
        columns = _session_changes(changes)
        await self._writer.run(lambda db: sessions.update(db, session_id, columns), columns.values())

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        validate_session_id(session_id)
        return self._reader.run_short(lambda db: sessions.get(db, session_id))

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return sessions with ids beginning with `prefix`; none for an impossible prefix."""
        if not _PREFIX.fullmatch(prefix):
            return []
        return self._reader.run(lambda db: sessions.find(db, prefix, _FOUND))

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions, the last updated first."""
        wanted = _filters({"project": project, "parent_id": parent_id})
        return await self._read(limit, lambda db: sessions.list_sessions(db, wanted, limit))

    async def spawned(self, session_id: str) -> list[SessionRecord]:
        """Return the sessions spawned by a session."""
        validate_session_id(session_id)
        size = self._reader.run_short(lambda db: sessions.count_spawned(db, session_id))
        return await self._read(size, lambda db: sessions.list_spawned(db, session_id)) if size else []

    async def expired_sessions(self, *, before: datetime, keep: int = 0, limit: int = 1000) -> list[str]:
        """Return the ids of finished sessions nobody needs, the oldest first."""
        return await self._read(None, lambda db: sessions.find_expired(db, micros(before), keep, limit))

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages. Raises `StoreDamaged` for a missing or changed message."""
        validate_session_id(session_id)
        end = self._reader.run_short(lambda db: sessions.length(db, session_id)) if stop is None else stop
        if end - max(0, start) <= SMALL:
            return self._reader.run_short(lambda db: sessions.read(db, session_id, start, stop))
        return await self._read(end - max(0, start), lambda db: sessions.read(db, session_id, start, stop))

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do as `read` does in the calling thread, for any number of messages."""
        validate_session_id(session_id)
        return self._reader.run(lambda db: sessions.read(db, session_id, start, stop))

    async def delete(self, session_id: str) -> None:
        """Delete a session and its unshared messages."""
        validate_session_id(session_id)
        await self._writer.run(lambda db: sessions.delete(db, session_id), erases=True)

    async def examine(self, session_id: str) -> list[Finding]:
        """Read the whole session and return its faults. Raises `StoreDamaged` for a damaged record."""
        validate_session_id(session_id)
        return await self._read(None, lambda db: integrity.examine(db, session_id))

    async def repair(self, session_id: str) -> list[Finding]:
        """Cut a history before its first bad message, and forget a deleted parent or source."""
        validate_session_id(session_id)
        return await self._writer.run(lambda db: integrity.repair(db, session_id, _now()))

    async def backup(self, path: Path) -> None:
        """Copy the present store, while it is in use, to a new file. Raises `StoreUnavailable`."""
        import asyncio

        from .copying import back_up

        await asyncio.to_thread(back_up, self.path, path)

    async def close(self) -> None:
        """Finish pending work and close the file; idempotent."""
        if not in_event_loop():
            self._close()
            return
        import asyncio

        await asyncio.to_thread(self._close)

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log."""
        row = EVENTS.row(event)
        numbers = await self._writer.run(lambda db: inbox.emit(db, [row]), row.values())
        return number_events([event], numbers)[0]

    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        """Append an event of another site to the log; None if it came before."""
        row, column = EVENTS.row(event), plain(origin, "origin")
        sequence = await self._writer.run(lambda db: inbox.receive(db, row, column, micros(_now())), row.values())
        return None if sequence is None else replace(event, sequence=sequence)

    async def events(
        self, *, since: int = 0, limit: int = 1000, source_session_id: str | None = None
    ) -> list[SessionEvent]:
        """Return logged events, oldest first."""
        size = min(limit, await self.last_sequence() - since)
        wanted = _filters({"source_session_id": source_session_id})
        return await self._read(size, lambda db: inbox.events(db, since, limit, wanted))

    async def find_events(self, prefix: str) -> list[SessionEvent]:
        """Return logged events with ids beginning with `prefix`; none for an impossible prefix."""
        if not _PREFIX.fullmatch(prefix):
            return []
        return self._reader.run(lambda db: inbox.find_events(db, prefix, _FOUND))

    async def last_sequence(self) -> int:
        """Return the sequence of the newest event."""
        return self._reader.run(inbox.last_sequence)

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
        now = now or _now()
        has_state = event.state is not None or event.state_changes is not None
        bare = replace(event, state=None, state_changes=None) if has_state else event
        delivery_id = new_delivery_id(now)
        delivery = Delivery(delivery_id, project, queue, trigger, bare, available_at=now, created=now, updated=now)
        if admission is not None:
            delivery = replace(delivery, key=admission.key, priority=admission.priority)
        if refused is not None:
            delivery = replace(delivery, state="refused", reason=refused)
        found_by = {name: plain(getattr(event, name), name) for name in ("dedupe_key", "event_id", "cause")}
        row = {**DELIVERIES.row(delivery), **found_by}
        given = (event.state, False), (event.state_changes, True)
        states = [encode_state(state, merge=merge) for state, merge in given if state is not None]
        written = chain(row.values(), *(row for each in states for row in each.rows))
        stored = await self._writer.run(lambda db: inbox.enqueue(db, row, states, admission), written)
        if stored is None or admission is None:
            return delivery if stored else None
        due, stored_reason = moment(int(stored["available_at"] or 0)), unplain(stored["reason"])
        return replace(delivery, state=unplain(stored["state"]), reason=stored_reason, available_at=due)

    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        """Return a trigger's state with all changes."""
        columns = plain(project, "project"), plain(trigger, "trigger")
        return self._reader.run(lambda db: inbox.trigger_state(db, *columns))

    async def save_trigger_state(
        self, project: str, trigger: str, state: Mapping[str, Any], *, merge: bool = False
    ) -> None:
        """Store a trigger's state without an event, or change some keys of it."""
        columns = plain(project, "project"), plain(trigger, "trigger")
        rows = encode_state(state, merge=merge)
        await self._writer.run(lambda db: inbox.save_trigger_state(db, *columns, rows), chain(*rows.rows))

    async def claim(
        self, project: str, queue: str, *, owner: str, lease: float, session_id: str, now: datetime | None = None
    ) -> Delivery | None:
        """Take the due delivery with the highest priority."""
        validate_session_id(session_id)
        now = now or _now()
        values = encode({"project": project, "queue": queue, "owner": owner, "session_id": session_id})
        values |= {"now": micros(now), "lease_until": _lease_end(now, lease)}
        return await self._writer.run(lambda db: inbox.claim(db, values), ())

    async def renew(self, delivery: Delivery, *, lease: float, now: datetime | None = None) -> None:
        """Extend the lease, as long as nobody else has claimed the delivery since."""
        changes: dict[str, Column] = {"lease_until": _lease_end(now or _now(), lease)}
        await self._writer.run(lambda db: inbox.advance(db, delivery, changes), ())

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Mark the delivery done, with its results; `session` may name another one by `session_id`."""
        return await self._finish(delivery, {"state": "done", "reason": None}, emits, session, documents)

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
        changes = {"state": "pending", "reason": reason, "available_at": available_at, "updated": now or _now()}
        await self._finish(delivery, {**changes, "attempts": delivery.attempts - (not counted)}, (), session)

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
        return await self._finish(delivery, {"state": "dead", "reason": reason}, emits, session, documents)

    async def _finish(
        self,
        delivery: Delivery,
        changes: Mapping[str, Any],
        emits: Sequence[SessionEvent],
        session: Mapping[str, Any] | None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        of_session = dict(session or {})
        session_id = of_session.pop("session_id", delivery.session_id)
        if of_session:
            validate_session_id(session_id)
        columns = _session_changes(of_session) if of_session else None
        rows = [EVENTS.row(event) for event in emits]
        changed = encode({"updated": _now(), **changes, "lease_until": 0})
        of_documents = self._encode(documents)
        written = chain(changed.values(), (columns or {}).values(), *(row.values() for row in rows))
        finished = await self._writer.run(
            lambda db: inbox.finish(db, delivery, changed, rows, session_id, columns, of_documents),
            None if documents else written,
        )
        return number_events(emits, finished)

    async def release(self, project: str) -> int:
        """Make every claimed delivery of `project` due now."""
        column = plain(project, "project")
        return await self._writer.run(lambda db: inbox.release(db, column, micros(_now())))

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
        given = {"project": project, "queue": queue, "state": state}
        wanted = _filters({**given, "event_id": event_id, "session_id": session_id, "cause": cause})
        return await self._read(limit, lambda db: inbox.deliveries(db, wanted, limit))

    async def find_deliveries(self, prefix: str) -> list[Delivery]:
        """Return deliveries with an id beginning with `prefix`; none for an impossible prefix."""
        if not _PREFIX.fullmatch(prefix):
            return []
        return self._reader.run(lambda db: inbox.find_deliveries(db, prefix, _FOUND))

    async def next_due(self, project: str, queue: str, *, now: datetime | None = None) -> datetime | None:
        """Return the next time a pending delivery of a queue comes due."""
        wanted, after = encode({"project": project, "queue": queue}), micros(now or _now())
        return self._reader.run(lambda db: inbox.next_due(db, wanted, after))

    async def due_queues(self, project: str, *, now: datetime | None = None) -> set[str]:
        """Return the queues of a project with a delivery to claim."""
        return self._reader.run(lambda db: inbox.due_queues(db, plain(project, "project"), micros(now or _now())))

    async def delivery_counts(self, *, project: str | None = None, queue: str | None = None) -> list[DeliveryCounts]:
        """Count the deliveries of each trigger by state."""
        wanted = _filters({"project": project, "queue": queue})
        return await self._read(None, lambda db: inbox.delivery_counts(db, wanted))

    async def redeliver(self, delivery_id: str, *, now: datetime | None = None) -> Delivery:
        """Make a dead, refused or skipped delivery due again, in its old place among those with its key."""
        column, due = plain(delivery_id, "delivery_id"), micros(now or _now())
        return await self._writer.run(lambda db: inbox.redeliver(db, column, due))

    async def make_due(self, delivery_id: str, *, now: datetime | None = None) -> bool:
        """Make a pending delivery due now; return whether it was due later."""
        column, due = plain(delivery_id, "delivery_id"), micros(now or _now())
        return await self._writer.run(lambda db: inbox.make_due(db, column, due))

    async def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Skip a pending or dead delivery."""
        columns = plain(delivery_id, "delivery_id"), plain(reason, "reason")
        return await self._writer.run(lambda db: inbox.drop(db, *columns, micros(_now())))

    async def purge(self, *, before: datetime, event_bytes: int = 0) -> Purged:
        """Delete old finished deliveries and the oldest events, in steps; later writes reuse their room in the file."""
        return await purge(self._writer, self._long_reader, micros(before), event_bytes)

    async def _read(self, size: int | None, query: Callable[[sqlite3.Connection], T]) -> T:
        if (size is not None and size <= SMALL) or not in_event_loop():
            return self._reader.run(query)
        import asyncio

        return await asyncio.to_thread(self._long_reader.run, query)

    def _close(self) -> None:
        if self._writer.committed is not None:
            self._watch.close()
        self._reader.close()
        self._long_reader.close()
        self._writer.close()  # last: whoever closes the file last folds the write-ahead log into it


def _now() -> datetime:
    return datetime.now(UTC)


def _lease_end(now: datetime, lease: float) -> int:
    return micros(now + timedelta(seconds=lease))


def _filters(given: Mapping[str, str | None]) -> dict[str, Column]:
    return encode({name: value for name, value in given.items() if value is not None})


def _session_changes(changes: Mapping[str, Any]) -> dict[str, Column]:
    check_changes(changes)
    return encode({**changes, "updated": _now()})
