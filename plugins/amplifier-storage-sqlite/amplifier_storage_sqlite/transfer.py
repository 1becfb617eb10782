"""Export and import the rows of a file: `amplifier_core.store_transfer.StoreTransfer`.

A row with a checksum is compared with it, and gets a new one. Columns that follow from others do not move.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import StoreConflict, StoreUnavailable
from amplifier_core.store_transfer import LONGEST_SETTLE_KEY, Page, cut_page
from amplifier_core.text_search import fold_words, join_members

from . import inbox, searching
from .documents import DOCUMENTS, encode_key
from .faults import DamageError, translate_errors
from .opening import COPY_TABLE, connect, has_copy, make_store, place_of, require_place, restrict
from .rows import DELIVERIES, EVENTS, StateRows
from .schema import checked_version
from .sessions import NAMES as SESSION_NAMES
from .values import checksum, field_of, loads, plain, unplain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from amplifier_core.store_transfer import Cursor, Row

    from .values import Column


class Kind(NamedTuple):
    """Say where the rows of a kind lie; `order` names columns that tell its rows apart."""

    table: str
    fields: tuple[str, ...]
    order: tuple[str, ...]
    sealed: int = 0
    """The number of fields, at their beginning, that the checksum covers."""
    expressions: Mapping[str, str] = {}
    """The fields that are not columns of this name."""

    def query(self, after: Cursor) -> str:
        """Return the query for rows after a cursor: the fields, the checksum, and the cursor after each."""
        columns = [self.expressions.get(name, name) for name in self.fields]
        digest = "digest" if self.sealed else "NULL"
        order = ", ".join(self.order)
        where = f"({order}) > ({', '.join('?' * len(self.order))})" if after else "TRUE"
        return f"SELECT {', '.join(columns)}, {digest}, {order} FROM {self.table} WHERE {where} ORDER BY {order}"


_DELIVERY_FIELDS = (
    *DELIVERIES.names,
    *("dedupe_key", "owner", "waits", "settle_key", "settling_since", "id"),
)
_UNCLAIMED = {
    "state": "iif(state = 'claimed', 'pending', state)",
    "waits": "waits > 0",
}
_STATES = "trigger_states JOIN triggers ON triggers.id = trigger_states.trigger"
_STATE_FIELDS = {"trigger": "triggers.trigger"}
_BODY = {"body": "CAST(body AS BLOB)", "fault": "0"}

KINDS = {
    "histories": Kind("histories", ("id", "source", "shared"), ("id",), 3),
    "messages": Kind("messages", ("history", "position", "body", "fault"), ("history", "position"), 3, _BODY),
    "sessions": Kind("sessions", (*SESSION_NAMES, "id"), ("id",), len(SESSION_NAMES)),
    "cuts": Kind("cuts", ("session_id", "history", "start", "stop", "cut"), ("history", "start", "session_id")),
    "events": Kind("events", EVENTS.names, ("sequence",)),
    "log": Kind("(SELECT coalesce(max(seq), 0) AS last FROM sqlite_sequence)", ("last",), ("last",)),
    "deliveries": Kind("deliveries", _DELIVERY_FIELDS, ("id",), expressions=_UNCLAIMED),
    "trigger_states": Kind(
        _STATES, ("project", "trigger", "key", "value"), ("trigger_states.trigger", "key"), expressions=_STATE_FIELDS
    ),
    "documents": Kind("documents", DOCUMENTS.names, ("project", "collection", "key"), len(DOCUMENTS.names)),
    "searched": Kind("document_texts", ("project", "collection", "key", "members"), ("id",)),
    "received": Kind("received", ("origin", "event_id", "at"), ("origin", "event_id")),
}


class SqliteTransfer:
    """A `StoreTransfer` for one file; the first import makes a missing file."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.path, self.place = path, str(path)
        self._busy_timeout = busy_timeout
        self._db: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None

    def fields(self) -> dict[str, tuple[str, ...]]:
        """Return the fields of each kind."""
        return {name: kind.fields for name, kind in KINDS.items()}

    def users(self) -> tuple[str, ...]:
        """Return no process: the locks of the data folder know them."""
        return ()

    def export_rows(self, kind: str, fields: Sequence[str], after: Cursor = None) -> Page:
        """Return rows after a cursor. Raises `StoreDamaged` for one that differs from the written one."""
        table = KINDS[kind]
        with translate_errors(self.path):
            db = self._connection()
            query = table.query(after)
            values = [encode_key(each["key"]) if isinstance(each, dict) else each for each in after or ()]
            rows = db.execute(query, values)
            try:
                return cut_page(_export(table, fields, row) for row in rows)
            finally:
                rows.close()

    def copy_state(self) -> str | None:
        """Return the state of the copy begun here."""
        if not self.path.exists():
            return None
        with translate_errors(self.path):
            return _state_of(self._connection())

    def is_empty(self) -> bool:
        """Return whether no table has a row; a missing file has none."""
        if not self.path.exists():
            return True
        with translate_errors(self.path):
            return _is_empty(self._connection())

    def import_rows(
        self, kind: str, fields: Sequence[str], rows: Sequence[Row], *, before: str | None, after: str | None
    ) -> None:
        """Add rows and replace the state of the copy, in one transaction."""
        with translate_errors(self.path), self._transaction() as db:
            if _state_of(db) != before:
                raise StoreConflict(self.path, "another process copies into it. Wait until that one has ended")
            if before is None and not _is_empty(db):
                raise StoreConflict(self.path, "is not empty. Move it away, or copy into an empty store")
            try:
                _IMPORTS.get(kind, _insert)(db, kind, [dict(zip(fields, row, strict=True)) for row in rows])
            except sqlite3.IntegrityError as error:
                raise StoreConflict(
                    self.path, f"was written during the copy ({error}). Move it away, or copy into an empty store"
                ) from error
            _keep_state(db, after)

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            if not self.path.exists():
                raise StoreUnavailable(self.path, "is not there. It is made when the first session is stored")
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as db:
                checked_version(db, self.path)  # before anything of it changes: it may be any file
            restrict(self.path)
            self._db, self._opened = connect(self.path, self._busy_timeout), place_of(self.path)
            self._db.execute("PRAGMA foreign_keys = OFF")  # everything arrives as it was
        require_place(self.path, self._opened)
        return self._db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._db is None:
            make_store(self.path)
        db = self._connection()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def _export(table: Kind, fields: Sequence[str], row: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the cursor after a row, and its fields. Raises `DamageError`; a damaged message has its mark."""
    count = len(table.fields)
    values = dict(zip(table.fields, row[:count], strict=True))
    if table.sealed and row[count] != checksum(*row[: table.sealed]):
        if "fault" not in values:
            raise DamageError(f"a row of {table.table} differs from the written row: {unplain(row[0])!r}")
        values |= {"fault": 1, "body": values["body"].decode("utf-8", "replace")}
    values = {name: unplain(value) for name, value in values.items()}
    if len(values.get("settle_key") or "") > LONGEST_SETTLE_KEY:
        values["settle_key"] = None
    cursor = [{"key": unplain(each)} if isinstance(each, bytes) else each for each in row[count + 1 :]]
    return cursor, [values[name] for name in fields]


def _insert(db: sqlite3.Connection, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    table = KINDS[kind]
    for row in rows:
        values: dict[str, Column] = {name: plain(value, name) for name, value in row.items()}
        fault = int(values.pop("fault", 0) or 0)
        if kind == "documents":
            values["key"] = encode_key(row["key"])
        if kind == "deliveries":
            values |= {name: field_of(values["event"], name) for name in ("event_id", "cause")}
        if kind == "sessions":
            values["listed"] = values["updated"]
        if table.sealed:
            values["digest"] = checksum(*[values[name] for name in table.fields[: table.sealed]]) + fault
        marks = ", ".join(f":{name}" for name in values)
        db.execute(f"INSERT INTO {table.table} ({', '.join(values)}) VALUES ({marks})", values)


def _import_log(db: sqlite3.Connection, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
        if row["last"]:
            db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (row["last"],))


def _import_states(db: sqlite3.Connection, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        state = StateRows([(plain(row["key"]), plain(row["value"]))], merge=True)
        inbox.save_trigger_state(db, plain(row["project"]), plain(row["trigger"]), state)


def _import_searched(db: sqlite3.Connection, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep the texts of documents, with their words as these documents have them."""
    find = "SELECT data FROM documents WHERE project = :project AND collection = :collection AND key = :key"
    for row in rows:
        place = {name: plain(row[name]) for name in ("project", "collection")} | {"key": encode_key(row["key"])}
        found = db.execute(find, place).fetchone()
        words = fold_words(join_members(loads(found[0]), loads(row["members"]))) if found else ""
        searching.keep(db, place, searching.Text(plain(row["members"]), words))


def _import_received(db: sqlite3.Connection, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep the ids of events of other sites, each beside its event in the log, as far as that is there."""
    insert = """INSERT INTO received (origin, event_id, at, sequence) VALUES (:origin, :event_id, :at,
        coalesce((SELECT sequence FROM events WHERE event_id = :event_id), 0))"""
    for row in rows:
        db.execute(insert, {name: plain(value, name) for name, value in row.items()})


_IMPORTS = {
    "log": _import_log,
    "trigger_states": _import_states,
    "searched": _import_searched,
    "received": _import_received,
}


def _is_empty(db: sqlite3.Connection) -> bool:
    tables = [kind.table for name, kind in KINDS.items() if name != "log"]
    rows = " OR ".join(f"EXISTS (SELECT 1 FROM {table})" for table in tables)
    return not db.execute(f"SELECT {rows} OR EXISTS (SELECT 1 FROM sqlite_sequence WHERE seq > 0)").fetchone()[0]


def _state_of(db: sqlite3.Connection) -> str | None:
    return str(db.execute(f"SELECT state FROM {COPY_TABLE}").fetchone()[0]) if has_copy(db) else None


def _keep_state(db: sqlite3.Connection, state: str | None) -> None:
    if not has_copy(db):
        db.execute(f"CREATE TABLE {COPY_TABLE} (state TEXT NOT NULL)")
    db.execute(f"DELETE FROM {COPY_TABLE}")
    db.execute(f"INSERT INTO {COPY_TABLE} VALUES (?)", (state,)) if state else db.execute(f"DROP TABLE {COPY_TABLE}")
