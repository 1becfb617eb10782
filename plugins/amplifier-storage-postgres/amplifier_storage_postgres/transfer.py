"""Export and import the rows of a schema: `amplifier_core.store_transfer.StoreTransfer`.

A row with a checksum is compared with it, and gets a new one. Columns that follow from others do not move.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg

from amplifier_core import store_transfer
from amplifier_core.errors import StoreConflict, StoreUnavailable
from amplifier_core.json_values import to_json
from amplifier_core.store_transfer import LONGEST_SETTLE_KEY, Page
from amplifier_core.text_search import fold_words, join_members

from .connections import Pool, connect
from .deliveries import indexed, state_digest
from .documents import encode_key, lexeme_of
from .faults import DamageError, store_error
from .projects import Projects
from .rows import DELIVERIES, DOCUMENTS, EVENTS, SESSIONS
from .schema import UNFINISHED_COPY, migrate
from .values import checksum, loads, plain, unplain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from amplifier_core.store_transfer import Cursor, Row

    from .connections import TimedConnection
    from .settings import Settings

    Read: TypeAlias = Callable[..., list[Any]]

UNSEEN = 40
"""Seconds after its last sign until a process counts as gone."""
_LONGEST = 600
"""Seconds that one statement of an import may take."""
_TEXTS = 50
"""Documents read at once for their words."""


class Kind(NamedTuple):
    """Say where the rows of a kind lie; `order` names columns that tell them apart, `longest` is the longest one."""

    table: str
    fields: tuple[str, ...]
    order: tuple[str, ...]
    longest: str = "''"
    sound: str = "TRUE"
    """Whether a row `t` is what was written, as far as the database can tell."""
    digest: bool = False
    """Whether the column `digest` is read, too."""

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read, and at last whether the row is sound."""
        columns = [name for name in self.fields if name not in _NO_COLUMNS]
        return (*columns, *(["digest"] if self.digest else []), "sound")

    def query(self, after: Cursor) -> str:
        """Return the query for the rows after a cursor: what is read of each, and the cursor after it."""
        columns, order = (", ".join(f'"{name}"' for name in names) for names in (self.read, self.order))
        where = f"({order}) > ({', '.join(['%s'] * len(self.order))})" if after else "TRUE"
        limit, most = store_transfer.PAGE_ROWS, store_transfer.PAGE_BYTES
        page = f"SELECT t.*, {self.sound} AS sound FROM @.{self.table} t WHERE {where} ORDER BY {order} LIMIT {limit}"
        size = f"octet_length({self.longest})"
        sized = f"SELECT *, sum({size}) OVER (ORDER BY {order}) - {size} AS before FROM ({page}) AS page"
        return f"SELECT {columns}, {order} FROM ({sized}) AS sized WHERE before < {most} ORDER BY {order}"


_NO_COLUMNS = {"fault", "owner"}
_LINK = "t.digest IS NOT DISTINCT FROM @.link_digest(t.id, t.source, t.shared)"
_RECORD = "t.digest IS NOT DISTINCT FROM @.digest_of(t)"
_DELIVERY = (*DELIVERIES.names, "dedupe_key", "owner", "waits", "settle_key", "settling_since", "id")
_MESSAGE = ("history", "position", "body", "fault")
_PLACE = ("project", "collection", "key")

KINDS = {
    "histories": Kind("histories", ("id", "source", "shared"), ("id",), sound=_LINK),
    "messages": Kind("messages", _MESSAGE, ("history", "position"), "body", digest=True),
    "sessions": Kind("sessions", (*SESSIONS.names, "history", "id"), ("id",), "config", _RECORD),
    "cuts": Kind("cuts", ("session_id", "history", "start", "stop", "cut"), ("history", "start", "session_id")),
    "events": Kind("events", EVENTS.names, ("sequence",), "data"),
    "log": Kind("log", ("last",), ("last",)),
    "deliveries": Kind("deliveries", _DELIVERY, ("id",), "event"),
    "trigger_states": Kind(
        "trigger_states", ("project", "trigger", "key", "value"), ("project", "trigger", "digest"), "value"
    ),
    "documents": Kind("documents", DOCUMENTS.names, _PLACE, "data", digest=True),
    "searched": Kind("document_texts", (*_PLACE, "members"), ("id",), "members"),
    "received": Kind("received", ("origin", "event_id", "at"), ("origin", "event_id")),
}

_HAS = "SELECT 1 FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relname = %s"
_EMPTY = " AND ".join(
    f"NOT EXISTS (SELECT 1 FROM @.{kind.table}{' WHERE last > 0' if kind.table == 'log' else ''})"
    for kind in KINDS.values()
)
_WORDS = """SELECT data
    FROM unnest(%s::text[], %s::text[], %s::bytea[]) WITH ORDINALITY AS w (project, collection, key, n)
    LEFT JOIN @.documents USING (project, collection, key) ORDER BY n"""
_ADD_TEXT = """INSERT INTO @.document_texts (project, collection, key, members, words, lexemes)
    VALUES (%(project)s, %(collection)s, %(key)s, %(members)s, %(words)s, array_to_tsvector(
        array_remove(string_to_array(left(%(words)s, 250000), ' '), '') || %(place)s::text))"""


class PostgresTransfer:
    """A `StoreTransfer` for one schema; the first import makes missing tables."""

    def __init__(self, settings: Settings) -> None:
        self.place = settings.place
        self._projects = Projects(settings.projects)
        self._pool = Pool(settings)
        self._is_there = False
        self._db: TimedConnection | None = None

    def fields(self) -> dict[str, tuple[str, ...]]:
        """Return the fields of each kind."""
        return {name: kind.fields for name, kind in KINDS.items()}

    def users(self) -> list[str]:
        """Return the processes that gave a sign in the last 40 seconds."""
        if not self._find():
            return []
        query = f"SELECT process FROM @.processes WHERE seen > @.clock() - {UNSEEN * 1_000_000} ORDER BY process"
        return [unplain(process) for (process,) in self._pool.read(query)]

    def export_rows(self, kind: str, fields: Sequence[str], after: Cursor = None) -> Page:
        """Return rows after a cursor. Raises `StoreDamaged` for one that differs from the written one."""
        if not self._find():
            raise StoreUnavailable(self.place, "is not there. Check the names of the database and of the schema")
        table = KINDS[kind]
        given = [encode_key(each["key"]) if isinstance(each, dict) else each for each in after or ()]
        found = self._pool.read(table.query(after), given)
        try:
            rows = [_EXPORTS.get(kind, _export)(dict(zip(table.read, row, strict=False))) for row in found]
        except DamageError as error:
            raise store_error(self.place, error) from error
        for row in rows:
            if isinstance(row.get("project"), str):
                row["project"] = self._projects.to_local(row["project"])
        cursor = (
            [{"key": _key_of(each)} if isinstance(each, bytes) else each for each in found[-1][len(table.read) :]]
            if found
            else None
        )
        return Page([[row[name] for name in fields] for row in rows], cursor)

    def copy_state(self) -> str | None:
        """Return the state of the copy begun here."""
        return _state_of(self._pool, self._pool.read) if self._find() else None

    def is_empty(self) -> bool:
        """Return whether no table has a row; missing tables have none."""
        return not self._find() or bool(self._pool.read(f"SELECT {_EMPTY}")[0][0])

    def import_rows(
        self, kind: str, fields: Sequence[str], rows: Sequence[Row], *, before: str | None, after: str | None
    ) -> None:
        """Add rows and replace the state of the copy, in one transaction."""
        if not self._find():
            migrate(self._pool, copying=True)
            self._is_there = True
        named: list[dict[str, Any]] = [dict(zip(fields, row, strict=True)) for row in rows]
        for row in named:
            if isinstance(row.get("project"), str):
                row["project"] = self._projects.to_stored(row["project"])
        encoded = [_IMPORTS.get(kind, _encode)(row) for row in named]
        if kind == "searched":
            self._add_words(encoded)
        try:
            with self._transaction() as db:
                self._check_state(db, before)
                _store(db, self._pool, kind, encoded)
                _keep_state(db, self._pool, before, after)
        except psycopg.errors.UniqueViolation as error:
            raise StoreConflict(
                self.place, f"was written during the copy ({error.diag.message_primary}). Copy into an empty store"
            ) from error
        except psycopg.Error as error:
            raise store_error(self.place, error) from error

    def close(self) -> None:
        """Close the connections."""
        if self._db is not None:
            self._db.close()
            self._db = None
        self._pool.close()

    def _find(self) -> bool:
        """Return whether the tables are there; those of an older version are brought to this one."""
        if not self._is_there and _has(self._pool, self._pool.read, "version"):
            migrate(self._pool, copying=True)
            self._is_there = True
        return self._is_there

    @contextmanager
    def _transaction(self) -> Iterator[TimedConnection]:
        """Run the block in a transaction; of several copies one at a time."""
        if self._db is None or self._db.closed:
            self._db = connect(self._pool.settings, patience=_LONGEST)
        with self._db.transaction():
            self._db.execute(f"SET LOCAL statement_timeout = '{_LONGEST}s'".encode())
            self._db.execute(self._pool.expand("SELECT @.lock_name('copy', 'state')"))
            yield self._db

    def _check_state(self, db: TimedConnection, before: str | None) -> None:
        def read(statement: str, values: Sequence[Any] = ()) -> list[Any]:
            return db.execute(self._pool.expand(statement), values or None).fetchall()

        if _state_of(self._pool, read) != before:
            raise StoreConflict(self.place, "another process copies into it. Wait until that one has ended")
        if before is None and not read(f"SELECT {_EMPTY}")[0][0]:
            raise StoreConflict(self.place, "is not empty. Move it away, or copy into an empty store")

    def _add_words(self, rows: Sequence[dict[str, Any]]) -> None:
        """Give texts of documents their words, as these documents have them."""
        for at in range(0, len(rows), _TEXTS):
            some = rows[at : at + _TEXTS]
            found = self._pool.read(_WORDS, [[row[name] for row in some] for name in _PLACE])
            for row, (data,) in zip(some, found, strict=True):
                row["words"] = fold_words(join_members(loads(data), loads(row["members"]))) if data else ""
                row["place"] = lexeme_of(row["project"], row["collection"])


def _key_of(column: bytes) -> str:
    return column.decode("utf-8", "surrogatepass")


def _export(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a row. Raises `DamageError`."""
    if not row.pop("sound"):
        raise DamageError(f"the row {next(iter(row.values()))!r} differs from the written row")
    return {name: _key_of(value) if isinstance(value, bytes) else unplain(value) for name, value in row.items()}


def _export_message(row: dict[str, Any]) -> dict[str, Any]:
    fault = int(row["digest"] != checksum(row["position"], row["body"]))
    return {**_export(row), "fault": fault}


def _export_document(row: dict[str, Any]) -> dict[str, Any]:
    digest = checksum(row["project"], row["collection"], row["key"].hex(), row["data"], row["version"])
    return _export({**row, "sound": row["digest"] == digest})


def _export_delivery(row: dict[str, Any]) -> dict[str, Any]:
    exported = _export(row)
    owners = list(map(unplain, row["owners"]))
    key, whole = exported["settle_key"], _event_of(exported).get("dedupe_key")
    return {
        **exported,
        "state": "pending" if row["state"] == "claimed" else row["state"],
        "waits": int(row["waits"] > 0),
        "settle_key": None if key is not None and len(key) > LONGEST_SETTLE_KEY else key,
        "dedupe_key": whole if indexed(whole, "dedupe_key") == row["dedupe_key"] else exported["dedupe_key"],
        "owners": to_json(owners),
        "owner": owners[-1] if owners else None,
    }


_EXPORTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "messages": _export_message,
    "documents": _export_document,
    "deliveries": _export_delivery,
}


def _encode(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value, name) for name, value in row.items()}


def _encode_history(row: Mapping[str, Any]) -> dict[str, Any]:
    told = " ".join(str("-" if row[name] is None else row[name]) for name in ("id", "source", "shared"))
    return {**row, "digest": sha256(told.encode()).hexdigest()}


def _encode_message(row: Mapping[str, Any]) -> dict[str, Any]:
    encoded = _encode(row)
    fault = int(encoded.pop("fault", 0) or 0)
    return {**encoded, "digest": checksum(encoded["position"], encoded["body"]) + fault}


def _encode_delivery(row: Mapping[str, Any]) -> dict[str, Any]:
    encoded, event = _encode(row), _event_of(row)
    owner, owners = encoded.pop("owner", None), row.get("owners")
    shortened = {"line": row["key"], "dedupe_key": row["dedupe_key"]}
    shortened |= {"source_event": event.get("event_id"), "cause": event.get("cause")}
    return {
        **encoded,
        **{name: indexed(text, name) for name, text in shortened.items()},
        "owners": list(map(plain, json.loads(owners))) if owners else [owner] if owner else [],
    }


def _event_of(delivery: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event of a delivery, {} for a damaged one."""
    try:
        event = json.loads(delivery["event"])
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _encode_state(row: Mapping[str, Any]) -> dict[str, Any]:
    encoded = _encode(row)
    return {**encoded, "digest": state_digest(encoded["key"])}


def _encode_text(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**_encode(row), "key": encode_key(row["key"])}


def _encode_document(row: Mapping[str, Any]) -> dict[str, Any]:
    encoded = _encode_text(row)
    parts = [encoded[name] for name in ("project", "collection", "key", "data", "version")]
    return {**encoded, "digest": checksum(*(part.hex() if isinstance(part, bytes) else part for part in parts))}


_IMPORTS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "histories": _encode_history,
    "messages": _encode_message,
    "deliveries": _encode_delivery,
    "trigger_states": _encode_state,
    "documents": _encode_document,
    "searched": _encode_text,
}


def _store(db: TimedConnection, pool: Pool, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add encoded rows, and let the numbers of later ones go on above."""
    if not rows:
        return
    if kind == "searched":
        with db.cursor() as cursor:
            cursor.executemany(pool.expand(_ADD_TEXT), rows)
        return
    if kind == "log":
        db.execute(pool.expand("UPDATE @.log SET last = %(last)s"), rows[-1])
        return
    table, names = KINDS[kind].table, tuple(rows[0])
    columns = ", ".join(f'"{name}"' for name in names)
    with db.cursor() as cursor, cursor.copy(pool.expand(f"COPY @.{table} ({columns}) FROM STDIN")) as stream:
        for row in rows:
            stream.write_row([row[name] for name in names])
    if "id" in names:
        db.execute(pool.expand(f"SELECT setval('@.{table}_id_seq', %s)"), (max(row["id"] for row in rows),))


def _has(pool: Pool, read: Read, table: str) -> bool:
    return bool(read(_HAS, (pool.settings.schema, table)))


def _state_of(pool: Pool, read: Read) -> str | None:
    if not _has(pool, read, UNFINISHED_COPY):
        return None
    return str(unplain(read(f"SELECT state FROM @.{UNFINISHED_COPY}")[0][0]))


def _keep_state(db: TimedConnection, pool: Pool, before: str | None, after: str | None) -> None:
    table = f"@.{UNFINISHED_COPY}"
    if after is None:
        db.execute(pool.expand(f"DROP TABLE {table}"))
        for kind in KINDS.values():  # the first queries need the statistics
            db.execute(pool.expand(f"ANALYZE @.{kind.table}"))
    elif before is None:
        db.execute(pool.expand(f"CREATE TABLE {table} (state text NOT NULL)"))
        db.execute(pool.expand(f"INSERT INTO {table} (state) VALUES (%s)"), (plain(after),))
    else:
        db.execute(pool.expand(f"UPDATE {table} SET state = %s"), (plain(after),))
