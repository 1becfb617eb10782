"""Implement `amplifier_core.shared_stores.SharedStore`: each method awaits one statement in PostgreSQL."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict
from amplifier_core.ids import validate_session_id
from amplifier_core.storage import check_changes

from . import sessions
from .connections import Pool
from .deliveries import AFTER, all_of
from .document_store import PostgresDocuments
from .hosts import PostgresHosts
from .inbox import FOUND, PREFIX, PostgresInbox
from .rows import SESSIONS
from .running import Runner
from .schema import migrate
from .values import checksum, dumps, micros, plain
from .view_store import PostgresViews

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from amplifier_core.storage import Delivery, Finding, SessionRecord
    from amplifier_core.transcript import Message

    from .settings import Settings

MOST_READS = 10
"""Attempts to read the texts of a session before they change again."""


class PostgresStore(PostgresInbox, PostgresDocuments, PostgresHosts, PostgresViews):
    """A `SharedStore` in a PostgreSQL database; usable from any thread and any event loop, by many processes at once.

    It receives events of other sites, and keeps documents, too. Open one with `open_postgres`. After `close`,
    everything raises `StoreUnavailable`.
    """

    reads_without_loop = True
    """Without an event loop every method runs in the calling thread."""

    def __init__(self, settings: Settings) -> None:
        pool = Pool(settings)
        try:
            migrate(pool)
        except BaseException:
            pool.close()
            raise
        self._runner = Runner(pool)

    def fenced(self, delivery: Delivery) -> PostgresStore:
        """Return a view of this store that writes only while the claim holds."""
        view = copy(self)
        view._fence = (str(plain(delivery.delivery_id)), delivery.epoch)
        return view

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` but no `fork_at`, fork the whole source."""
        for session_id in (record.session_id, record.parent_id, record.fork_of):
            if session_id is not None:
                validate_session_id(session_id)
        row = SESSIONS.row(record, self._runner.projects)
        made = await self._runner.write("create", self._fenced({"row": row}))
        stored = {**row, "fork_at": made["fork_at"], "message_count": made["count"]}
        return SESSIONS.item([stored[name] for name in SESSIONS.names], self._runner.projects)

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`. Raises `TypeError`, naming the place, for a value without a JSON form."""
        validate_session_id(session_id)
        bodies = [dumps(message, f"messages[{index}]") for index, message in enumerate(messages)]
        digests = [checksum(position, body) for position, body in enumerate(bodies, at)]
        given = self._fenced({"session_id": session_id, "at": at, "digests": digests})
        return int(await self._runner.write("append", given, bodies))

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record."""
        validate_session_id(session_id)
        check_changes(changes)
        given = {"session_id": session_id, "changes": self._encode(changes)}
        await self._runner.write("update", self._fenced(given))

    async def delete(self, session_id: str) -> None:
        """Delete a session, its unshared messages, and its texts in the log and in finished deliveries."""
        validate_session_id(session_id)
        for _ in range(MOST_READS):
            texts = await self._runner.read(sessions.emptied, session_id)
            if await self._runner.write("delete", self._fenced({"session_id": session_id, **texts})) is not None:
                return  # else a text has come since the others were read
        raise SessionConflict(session_id, f"session '{session_id}' still writes events. Stop it, and delete it then")

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        validate_session_id(session_id)
        return await self._runner.read(sessions.get, self._runner.projects, session_id)

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return sessions with ids beginning with `prefix`; none for an impossible prefix."""
        if not PREFIX.fullmatch(prefix):
            return []
        query = f"{sessions.LISTED} WHERE session_id >= %s AND session_id < %s ORDER BY created DESC, id DESC LIMIT %s"
        return await self._runner.read(sessions.listed, self._runner.projects, query, (prefix, prefix + AFTER, FOUND))

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions, the last updated first."""
        wanted = self._filters({"project": project, "parent_id": parent_id})
        query = f"{sessions.LISTED} WHERE {all_of(wanted)} ORDER BY updated DESC, id DESC LIMIT %(limit)s"
        values = {**wanted, "limit": limit}
        return await self._runner.read(sessions.listed, self._runner.projects, query, values)

    async def spawned(self, session_id: str) -> list[SessionRecord]:
        """Return the sessions spawned by a session."""
        validate_session_id(session_id)
        where = "parent_id = %s AND fork_of IS NULL AND event_id IS NULL ORDER BY updated DESC, id DESC"
        query = f"{sessions.LISTED} WHERE {where}"
        return await self._runner.read(sessions.listed, self._runner.projects, query, (session_id,))

    async def expired_sessions(self, *, before: datetime, keep: int = 0, limit: int = 1000) -> list[str]:
        """Return the ids of finished sessions nobody needs, the oldest first."""
        rows = await self._runner.rows(sessions.EXPIRED, (keep, micros(before), limit))
        return [session_id for (session_id,) in rows]

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages. Raises `StoreDamaged` for a missing or changed message."""
        validate_session_id(session_id)
        return await self._runner.read(sessions.read, session_id, start, stop)

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do as `read` does in the calling thread."""
        validate_session_id(session_id)
        return self._runner.read_here(sessions.read, session_id, start, stop)

    async def examine(self, session_id: str) -> list[Finding]:
        """Read the whole session and return its faults. Raises `StoreDamaged` for a damaged record."""
        validate_session_id(session_id)
        return await self._runner.read(sessions.examine, session_id)

    async def repair(self, session_id: str) -> list[Finding]:
        """Cut a history before its first bad message, and forget a deleted parent or source."""
        validate_session_id(session_id)
        findings, plan = await self._runner.read(sessions.plan_repair, session_id)
        if findings:
            await self._runner.write("repair", plan)
        return findings

    async def close(self) -> None:
        """End running statements and close all connections; idempotent. A view made by `fenced` closes nothing."""
        if self._fence is None:
            await self._runner.close()
