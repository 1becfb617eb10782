"""Check a whole file: its pages, its indexes, the checksums of its rows, and the completeness of its sessions."""

from __future__ import annotations

import logging
import re
import sqlite3
from contextlib import closing, suppress
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.storage import StoreFault

from .counting import FINISHED, count_deliveries
from .documents import COLUMNS as DOCUMENT_COLUMNS
from .message_search import clear_index
from .ordering import has_wrong_order, restore_order
from .schema import upgrade
from .searching import rebuild_index
from .session_texts import clear_texts
from .sessions import COLUMNS
from .values import checksum, loads, unplain

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

SALVAGE = "write everything readable into a new store: amplifier store salvage"
REPAIR = "rebuild the indexes: amplifier store check --repair"
DROP = "drop it: amplifier store check --repair"
MOST = 100
"""Faults reported of one kind."""

# tables with checksums; the last column is the checksum of the others
_SUMS = {
    "sessions": f"SELECT {COLUMNS} FROM sessions NOT INDEXED",
    "histories": "SELECT id, source, shared, digest FROM histories NOT INDEXED",
    "messages": "SELECT history, position, CAST(body AS BLOB), digest FROM messages NOT INDEXED",
    "documents": f"SELECT {DOCUMENT_COLUMNS} FROM documents NOT INDEXED",
}
_JSON = {
    "deliveries": "SELECT delivery_id, event FROM deliveries NOT INDEXED",
    "events": "SELECT event_id, data FROM events NOT INDEXED",
    "trigger_states": "SELECT triggers.trigger || ' ' || key, value FROM trigger_states "
    "JOIN triggers ON triggers.id = trigger_states.trigger",
}

# Indexes of one's own: they hold no row back, whatever it has.
_HARMLESS = """
SELECT indexes.name FROM sqlite_master AS tables, pragma_index_list(tables.name) AS indexes
WHERE tables.type = 'table' AND tables.rootpage > 0 AND origin = 'c' AND NOT "unique" AND NOT partial AND NOT EXISTS (
    SELECT * FROM pragma_index_xinfo(indexes.name) WHERE cid = -2 OR coll NOT IN ('BINARY', 'NOCASE', 'RTRIM')
)
"""

# A history is complete when each part is: its own messages up to the end that the record names, and the shared ones of
# its source.
_INCOMPLETE = """
WITH parts (session_id, history, stop) AS (
    SELECT session_id, history, message_count FROM sessions
    UNION ALL
    SELECT session_id, source, min(stop, shared) FROM parts JOIN histories ON id = history
    WHERE source < history AND shared > 0
)
SELECT session_id, sum(max(stop - coalesce(shared, 0), 0) - (
    SELECT count(*) FROM messages
    WHERE messages.history = parts.history AND position >= coalesce(shared, 0) AND position < stop
)) AS missing
FROM parts LEFT JOIN histories ON id = history GROUP BY session_id HAVING missing > 0 ORDER BY session_id
"""


_COUNTED = "SELECT project, queue, trigger, state, count FROM delivery_counts WHERE count <> 0"
_REALLY = f"""SELECT project, queue, trigger, state, count(*) FROM deliveries NOT INDEXED WHERE {FINISHED}
    GROUP BY project, queue, trigger, state"""
_WRONG = f"SELECT EXISTS ({_COUNTED} EXCEPT {_REALLY}) OR EXISTS ({_REALLY} EXCEPT {_COUNTED})"


def find_faults(db: sqlite3.Connection) -> list[StoreFault]:
    """Return the faults of a file, at most `MOST` of each kind; reads every page."""
    faults = [StoreFault("file", each, SALVAGE) for each in damaged_pages(db)]
    for find in (_strange_schema, _wrong_checksums, _unreadable_values, _wrong_derived, incomplete_sessions):
        try:
            faults += islice(find(db), MOST)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            faults.append(StoreFault("file", str(error), SALVAGE))
    return list(dict.fromkeys(faults))


def find_strange(db: sqlite3.Connection) -> list[str]:
    """Return what a file of this version has besides the tables of a store, or in their place.

    A trigger or a view of another hand changes what is written, and no error says so. Indexes and the tables of
    searches can be made anew at any time: see `restore_indexes`.
    """
    known, there = _read_known(), _read_schema(db)
    foreign = (place for place in there if place[0] in ("trigger", "view") and place not in known)
    strange = [f"{kind} '{name}', which no store has" for kind, name in foreign]
    strange += [
        f"no {kind} '{name}' as a store has it"
        for (kind, name), wanted in known.items()
        if kind != "index" and "_index" not in name and not wanted.is_same(there.get((kind, name)))
    ]
    return strange


def lacks_indexes(db: sqlite3.Connection) -> bool:
    """Return whether the indexes and searches of a file are not those of a store, as the SQLite of this process has."""
    return bool(_plan_indexes(db))


def restore_indexes(db: sqlite3.Connection) -> None:
    """Give a file the indexes and searches of a store, and drop each index of another hand that may refuse new rows.

    Raises `sqlite3.IntegrityError` for rows that no index of a store allows.
    """
    plan = _make_indexes(db)
    if any(kind == "table" for kind, _ in plan):
        _rebuild_searches(db)
    _tell_dropped(plan)


def _make_indexes(db: sqlite3.Connection) -> dict[tuple[str, str], list[str]]:
    """Carry out the plan, and return it."""
    plan = _plan_indexes(db)
    for statements in plan.values():
        for statement in statements:
            db.execute(statement)
    return plan


def _tell_dropped(plan: dict[tuple[str, str], list[str]]) -> None:
    for kind, name in plan:
        if (kind, name) not in _read_known():
            logger.warning("the index '%s', which no store has, is dropped: it may refuse new rows", name)


def _rebuild_searches(db: sqlite3.Connection) -> None:
    rebuild_index(db)
    clear_index(db)
    clear_texts(db)


class _Definition(NamedTuple):
    table: str
    sql: str

    def is_same(self, other: _Definition | None) -> bool:
        # versions of SQLite quote a renamed table; stores of before have a table without rowids
        mine, theirs = (re.sub(r'["\s]', "", each.sql if each else "") for each in (self, other))
        return mine.removesuffix("WITHOUTROWID") == theirs.removesuffix("WITHOUTROWID")

    def is_search(self) -> bool:
        return self.sql.startswith("CREATE VIRTUAL")


@cache
def _read_known() -> dict[tuple[str, str], _Definition]:
    """Return the schema of a store of this version, as the SQLite of this process makes it."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        upgrade(fresh)
        return _read_schema(fresh)


def _read_schema(db: sqlite3.Connection) -> dict[tuple[str, str], _Definition]:
    """Return the definitions in a file, by kind and name."""
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    named = (row for row in rows if not row[1].startswith("sqlite_"))
    return {(kind, name): _Definition(table, sql or "") for kind, name, table, sql in named}


def _plan_indexes(db: sqlite3.Connection) -> dict[tuple[str, str], list[str]]:
    """Return each wrong or missing index and search of a file, with the statements to mend it.

    The table of a search without statements is made by `_rebuild_searches`. Indexes of other tables stay, and
    those that refuse no row.
    """
    known, there = _read_known(), _read_schema(db)
    harmless = {name for (name,) in db.execute(_HARMLESS)}
    plan = {}
    for (kind, name), found in there.items():
        wanted = known.get((kind, name))
        is_index = kind == "index" and (wanted or (("table", found.table) in known and name not in harmless))
        if (is_index or (wanted and wanted.is_search())) and not found.is_same(wanted):
            quoted = name.replace('"', '""')
            plan[kind, name] = [f'DROP {kind} "{quoted}"']
    for (kind, name), wanted in known.items():
        if (kind == "index" or wanted.is_search()) and not wanted.is_same(there.get((kind, name))):
            plan.setdefault((kind, name), []).extend([wanted.sql] if kind == "index" else [])
    return plan


def damaged_pages(db: sqlite3.Connection) -> list[str]:
    """Return contradictions between the pages and indexes of a file."""
    try:
        found = [text for (text,) in db.execute(f"PRAGMA integrity_check({MOST})")]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]
    return [line for text in found if text != "ok" for line in text.splitlines() if not line.startswith("***")]


def incomplete_sessions(db: sqlite3.Connection) -> Iterator[StoreFault]:
    """Yield a fault for each session with missing messages."""
    for session_id, missing in db.execute(_INCOMPLETE):
        message = f"{missing} of its messages are missing"
        yield StoreFault(f"session {session_id}", message, f"amplifier session repair {session_id}")


def has_wrong_derived(db: sqlite3.Connection) -> bool:
    """Return whether counts of finished deliveries, or times that sessions are listed under, differ from the rows."""
    try:
        return any(_wrong_derived(db))
    except sqlite3.Error:
        return True


def rebuild_indexes(db: sqlite3.Connection) -> bool:
    """Rebuild indexes, counts and the order of sessions if only they are damaged; return whether the file is sound.

    An index with more rows than its table is evidence of lost rows: it stays.
    """
    with suppress(sqlite3.Error):
        db.execute("BEGIN IMMEDIATE")
        try:
            plan = _make_indexes(db)  # first: one of another hand may fail what follows
            if not _has_lost_rows(db):
                db.execute("REINDEX")
                restore_order(db)
                _rebuild_searches(db)
                count_deliveries(db)
                if not damaged_pages(db):
                    db.execute("COMMIT")
                    _tell_dropped(plan)
                    return True
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
    return False


def _has_lost_rows(db: sqlite3.Connection) -> bool:
    """Return whether an index knows of rows its table has lost. Raises `sqlite3.Error` for an unreadable table."""
    indexes = "SELECT tbl_name, name, coalesce(sql, '') FROM sqlite_master WHERE type = 'index'"
    for table, index, sql in db.execute(indexes).fetchall():
        where = sql.partition(" WHERE ")[2] or "TRUE"
        rows = db.execute(f"SELECT count(*) FROM {table} NOT INDEXED WHERE {where}").fetchone()[0]
        with suppress(sqlite3.DatabaseError):  # an unreadable index is rebuilt; count(*) would choose its own index
            if db.execute(f"SELECT total(1) FROM {table} INDEXED BY {index} WHERE {where}").fetchone()[0] > rows:
                return True
    return False


def _strange_schema(db: sqlite3.Connection) -> Iterator[StoreFault]:
    yield from (StoreFault("file", f"has {each}", SALVAGE) for each in find_strange(db))
    for place in _plan_indexes(db):
        kind, name = place
        is_known = place in _read_known()
        what = f"no {kind} '{name}' as a store has it" if is_known else f"{kind} '{name}', which no store has"
        yield StoreFault("file", f"has {what}", REPAIR if is_known else DROP)


def _wrong_derived(db: sqlite3.Connection) -> Iterator[StoreFault]:
    if db.execute(_WRONG).fetchone()[0]:
        yield StoreFault("deliveries", "their counts differ from them", REPAIR)
    if has_wrong_order(db):
        yield StoreFault("sessions", "are listed in a wrong order", REPAIR)


def _wrong_checksums(db: sqlite3.Connection) -> Iterator[StoreFault]:
    for table, query in _SUMS.items():
        for *columns, digest in db.execute(query):
            if checksum(*columns) == digest:
                continue
            place, remedy = f"{table}, {unplain(columns[0])}", SALVAGE
            if table == "messages":
                place = f"messages, history {columns[0]}, message m{columns[1] + 1}"
                remedy = "end the session before it: amplifier session repair"
            elif table == "documents":
                place = f"documents, {unplain(columns[1])}, {unplain(columns[2])}"
            elif table == "sessions":
                remedy = f"delete it: amplifier session delete {unplain(columns[0])}; or {SALVAGE}"
            yield StoreFault(place, "differs from the written row", remedy)


def _unreadable_values(db: sqlite3.Connection) -> Iterator[StoreFault]:
    for table, query in _JSON.items():
        for name, value in db.execute(query):
            try:
                loads(value)
            except ValueError:
                yield StoreFault(f"{table}, {unplain(name)}", "is not JSON", SALVAGE)
