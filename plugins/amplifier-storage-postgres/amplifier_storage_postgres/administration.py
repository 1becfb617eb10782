"""Administer the tables of a store: room, checks. Backups are made with the tools of PostgreSQL."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import Compacted, Salvaged, StoreFault, StoreInfo, StoreUse

from .connections import Pool
from .documents import COLUMNS, decode_row
from .faults import DamageError
from .projects import Projects
from .schema import check_version
from .sessions import damaged_record
from .values import checksum, loads, unplain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .settings import Settings

MOST = 100
"""Faults reported of one kind."""
_SHOWN = 5
_BATCH = 5000
"""Rows of messages compared at a time."""
_LONGEST = 600.0
"""Seconds that one query may take."""

_KINDS = {
    "histories": "sessions",
    "cuts": "sessions",
    "log": "events",
    "received": "events",
    "begun": "deliveries",
    "rates": "deliveries",
    "trigger_states": "trigger states",
    "document_texts": "documents",
    "message_texts": "search in messages",
    "message_ends": "search in messages",
    "leases": "processes",
    "operations": "processes",
    "version": "processes",
}
_COUNTED = ("sessions", "messages", "events", "deliveries", "trigger_states", "documents", "processes")
_SIZES = """SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relnamespace = %s::regnamespace AND relkind = 'r'"""
_FREE = """SELECT coalesce(sum(pg_relation_size(relid) * n_dead_tup / greatest(n_live_tup + n_dead_tup, 1)), 0)::bigint
    FROM pg_stat_user_tables WHERE schemaname = %s"""
_LARGEST = (
    "SELECT 'queue ' || queue, count(*), sum(octet_length(event)) FROM @.deliveries GROUP BY project, queue",
    "SELECT 'state of ' || trigger, count(*), sum(octet_length(key) + octet_length(value)) FROM @.trigger_states "
    "GROUP BY project, trigger",
    "SELECT 'documents of ' || collection, count(*), sum(octet_length(data)) FROM @.documents "
    "GROUP BY project, collection",
    "SELECT 'events named ' || name, count(*), sum(octet_length(data)) FROM @.events GROUP BY name",
    "SELECT 'session ' || coalesce(s.session_id, '(deleted)'), count(*), sum(octet_length(m.body)) FROM @.messages m "
    "LEFT JOIN @.sessions s USING (history) GROUP BY m.history, s.session_id",
)
_RECORDS = """SELECT session_id FROM @.sessions s WHERE digest IS DISTINCT FROM @.digest_of(s)
    ORDER BY session_id LIMIT %s"""
_LINKS = """SELECT id FROM @.histories WHERE digest IS DISTINCT FROM @.link_digest(id, source, shared)
    ORDER BY id LIMIT %s"""
_MESSAGES = """SELECT history, position, body, digest FROM @.messages WHERE (history, position) > (%s, %s)
    ORDER BY history, position LIMIT %s"""
_JSON = {
    "deliveries": "SELECT delivery_id, event FROM @.deliveries",
    "events": "SELECT event_id, data FROM @.events",
    "trigger_states": "SELECT trigger || ' ' || key, value FROM @.trigger_states",
}

# A history is complete when each part is: its own messages up to the end that the record names, and the shared ones of
# its source.
_INCOMPLETE = """
WITH RECURSIVE parts (session_id, history, stop) AS (
    SELECT session_id, history, message_count FROM @.sessions
    UNION ALL
    SELECT session_id, source, least(stop, shared) FROM parts JOIN @.histories h ON h.id = parts.history
    WHERE source < history AND shared > 0
)
SELECT session_id, sum(greatest(stop - coalesce(shared, 0), 0) - (
    SELECT count(*) FROM @.messages m
    WHERE m.history = parts.history AND position >= coalesce(shared, 0) AND position < stop
))::bigint AS missing
FROM parts LEFT JOIN @.histories h ON h.id = parts.history GROUP BY session_id
HAVING sum(greatest(stop - coalesce(shared, 0), 0) - (
    SELECT count(*) FROM @.messages m
    WHERE m.history = parts.history AND position >= coalesce(shared, 0) AND position < stop
)) > 0 ORDER BY session_id
"""
RESTORE = "restore a backup of the database"


class PostgresAdministration:
    """A `StoreAdministration` as far as a database is the store's own affair; it connects for each call."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = settings.place

    def info(self) -> StoreInfo:
        """Return the room of the tables with their indexes, and the largest single things."""
        with _Opened(self._settings) as pool:
            kinds: dict[str, tuple[int, int]] = {}
            for table, size in pool.read(_SIZES, (self._settings.schema,)):
                kind = _KINDS.get(table, table)
                rows, total = kinds.get(kind, (0, 0))
                if table in _COUNTED:
                    rows += pool.read(f"SELECT count(*) FROM @.{table}")[0][0]
                kinds[kind] = rows, total + size
            found = [row for query in _LARGEST for row in pool.read(query)]
            bytes_, free = _size(pool)
        named = (StoreUse(kind, rows, size) for kind, (rows, size) in kinds.items())
        uses = sorted(named, key=_bytes_of, reverse=True)
        largest = sorted((StoreUse(unplain(name), rows, int(size or 0)) for name, rows, size in found), key=_bytes_of)
        return StoreInfo(
            place=Path(self._name),
            bytes=bytes_,
            free=free,
            uses=tuple(uses),
            largest=tuple(largest[: -_SHOWN - 1 : -1]),
            other_backups=self._other_backups(),
        )

    def size(self) -> tuple[int, int]:
        """Return the bytes of the tables with their indexes, and about how many of them are free."""
        with _Opened(self._settings) as pool:
            return _size(pool)

    def probe(self) -> None:
        """Raise an error unless the server answers and has the tables of this version."""
        with _Opened(self._settings):
            pass

    def check(self, *, repair: bool = False) -> list[StoreFault]:
        """Read all rows and return their faults; `repair` changes nothing: indexes are rebuilt with REINDEX."""
        with _Opened(self._settings) as pool:
            finders = (_wrong_records, _wrong_messages, _wrong_documents, _unreadable_values, _incomplete_sessions)
            return [fault for find in finders for fault in islice(find(pool), MOST)]

    def backup(self, path: Path | None = None, *, keep: int | None = None, label: str = "") -> Path:
        """Raise `StoreUnavailable`: PostgreSQL makes its own backups."""
        self._refuse(self._other_backups())

    def backups(self) -> list[Path]:
        """Return none: backups of the database are the server's affair."""
        return []

    def restore(self, path: Path | None = None) -> Path:
        """Raise `StoreUnavailable`: PostgreSQL restores its own backups."""
        self._refuse(
            "is restored with PostgreSQL's own tools: stop all hosts, rename the schema (ALTER SCHEMA "
            f"{self._settings.schema} RENAME TO {self._settings.schema}_before), then "
            "pg_restore --single-transaction -d DATABASE FILE"
        )

    def salvage(self, path: Path | None = None) -> Salvaged:
        """Raise `StoreUnavailable`: PostgreSQL has tools for damaged tables."""
        self._refuse("is repaired with PostgreSQL's own tools: pg_amcheck, and a backup with pg_restore")

    def compact(self, *, wait: bool = False) -> Compacted:
        """Raise `StoreUnavailable`: PostgreSQL gives free room back by itself."""
        self._refuse("is compacted by autovacuum; VACUUM FULL gives all free room back, while everybody waits")

    def _other_backups(self) -> str:
        return (
            "is backed up with PostgreSQL's own tools: pg_dump --format=custom --schema="
            f"{self._settings.schema} for a copy now, or continuous archiving for any point in time"
        )

    def _refuse(self, what: str) -> NoReturn:
        raise StoreUnavailable(self._name, what)


class _Opened:
    """Hold a pool for one call. Raises the errors of the contract."""

    def __init__(self, settings: Settings) -> None:
        self._pool = Pool(settings._replace(timeout=max(settings.timeout, _LONGEST)))

    def __enter__(self) -> Pool:
        try:
            check_version(self._pool)
        except BaseException:
            self._pool.close()
            raise
        return self._pool

    def __exit__(self, *raised: object) -> None:
        self._pool.close()


def _bytes_of(use: StoreUse) -> int:
    return use.bytes


def _size(pool: Pool) -> tuple[int, int]:
    name = pool.settings.schema
    return sum(size for _, size in pool.read(_SIZES, (name,))), int(pool.read(_FREE, (name,))[0][0])


def _wrong_records(pool: Pool) -> Iterator[StoreFault]:
    for (session_id,) in pool.read(_RECORDS, (MOST,)):
        remedy = f"delete it: amplifier session delete {session_id}; or {RESTORE}"
        yield StoreFault(f"sessions, {session_id}", damaged_record(session_id), remedy)
    for (history,) in pool.read(_LINKS, (MOST,)):
        yield StoreFault(f"histories, {history}", "differs from the written row", RESTORE)


def _wrong_messages(pool: Pool) -> Iterator[StoreFault]:
    last = (-1, -1)
    while rows := pool.read(_MESSAGES, (*last, _BATCH)):
        for history, position, body, digest in rows:
            if digest != checksum(position, body):
                place = f"messages, history {history}, message m{position + 1}"
                remedy = "end the session before it: amplifier session repair"
                yield StoreFault(place, "differs from the written row", remedy)
        last = rows[-1][:2]


def _wrong_documents(pool: Pool) -> Iterator[StoreFault]:
    for row in pool.read(f"SELECT {COLUMNS} FROM @.documents"):
        try:
            decode_row(row, Projects({}))
        except DamageError as damage:
            yield StoreFault(f"documents, {unplain(row[1])}", str(damage), RESTORE)


def _unreadable_values(pool: Pool) -> Iterator[StoreFault]:
    for table, query in _JSON.items():
        for name, value in pool.read(query):
            try:
                loads(value)
            except ValueError:
                yield StoreFault(f"{table}, {unplain(name)}", "is not JSON", RESTORE)


def _incomplete_sessions(pool: Pool) -> Iterator[StoreFault]:
    for session_id, missing in pool.read(_INCOMPLETE):
        message = f"{missing} of its messages are missing"
        yield StoreFault(f"session {session_id}", message, f"amplifier session repair {session_id}")
