"""Sessions: one function for each thing done to them, given a connection. Ids were validated by the caller.

A row holds the record, which history the session goes on with, and a checksum of both.
"""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict, SessionExists, SessionNotFound

from . import histories
from .faults import Damage
from .rows import SESSIONS
from .values import checksum, micros

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message

    from .values import Column

_NAMES = (*SESSIONS.names, "history")
_COLUMNS = ", ".join((*_NAMES, "digest"))
_in_order = itemgetter(*_NAMES)
AFTER = "\uffff"
"""After a prefix of an id, this comes after whatever follows it: an id is ASCII."""
_INSERT = (
    f"INSERT INTO sessions ({_COLUMNS}) VALUES ({', '.join(':' + name for name in _NAMES)}, :digest) "
    "ON CONFLICT (session_id) DO NOTHING"
)


_SPENT = """
WITH woken AS (
    SELECT session_id, status, updated, id,
        row_number() OVER (PARTITION BY parent_id, name ORDER BY updated DESC, id DESC) AS place
    FROM sessions WHERE event_id IS NOT NULL
)
SELECT session_id FROM woken
WHERE place > :keep AND updated < :before AND status <> 'running' AND NOT EXISTS (
    SELECT 1 FROM deliveries
    WHERE deliveries.session_id = woken.session_id AND state IN ('pending', 'claimed', 'dead')
)
ORDER BY updated, id LIMIT :limit
"""

_ABOVE = """
WITH RECURSIVE above (id) AS (
    VALUES (:parent) UNION SELECT parent_id FROM sessions JOIN above ON session_id = above.id
)
SELECT 1 FROM above
WHERE id = :session_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE session_id = :session_id)
"""


def create(db: sqlite3.Connection, row: Mapping[str, Column]) -> SessionRecord:
    """Insert a session; with `fork_of`, one that shares its source's messages."""
    source, fork_at = None, None
    if row["fork_of"] is not None:
        source_row = stored(db, str(row["fork_of"]))
        source, fork_at = source_row["history"], _fork_point(source_row["message_count"], row["fork_at"])
    _refuse_a_circle(db, row["session_id"], row["parent_id"])
    history = histories.begin(db, source, fork_at or 0)
    inserted = _sealed({**row, "fork_at": fork_at, "message_count": fork_at or 0, "history": history})
    if not db.execute(_INSERT, inserted).rowcount:
        raise SessionExists(str(row["session_id"]))
    return SESSIONS.item([inserted[name] for name in SESSIONS.names])


def append(db: sqlite3.Connection, session_id: str, bodies: Sequence[Column], at: int, now: datetime) -> int:
    """Add messages at the end, which must be at `at`; return the new count."""
    row = stored(db, session_id)
    count = row["message_count"]
    if count != at:
        raise SessionConflict(
            session_id,
            f"session '{session_id}' has {count} messages, not {at}: somebody else wrote it. Resume it to go on",
        )
    if bodies:
        histories.extend(db, row["history"], at, bodies)
        change(db, row, {"message_count": at + len(bodies), "updated": micros(now)})
    return at + len(bodies)


def update(db: sqlite3.Connection, session_id: str, changes: Mapping[str, Column]) -> None:
    """Set columns of the row."""
    change(db, stored(db, session_id), changes)


def get(db: sqlite3.Connection, session_id: str) -> SessionRecord:
    """Return one record."""
    row = stored(db, session_id)
    return SESSIONS.item([row[name] for name in SESSIONS.names])


def find(db: sqlite3.Connection, prefix: str, limit: int) -> list[SessionRecord]:
    """Return those whose id begins with `prefix`, newest first."""
    within = "session_id >= ? AND session_id < ?"
    query = f"SELECT {_COLUMNS} FROM sessions WHERE {within} ORDER BY created DESC, id DESC LIMIT ?"
    return [_record(row) for row in db.execute(query, (prefix, prefix + AFTER, limit))]


def spent(db: sqlite3.Connection, before: int, keep: int, limit: int) -> list[str]:
    """Return the ids of those that events woke and nobody needs, the oldest first."""
    return [session_id for (session_id,) in db.execute(_SPENT, {"before": before, "keep": keep, "limit": limit})]


def listed(db: sqlite3.Connection, wanted: Mapping[str, Column], limit: int | None) -> list[SessionRecord]:
    """Return those whose columns have the wanted values, the last updated first."""
    where = " AND ".join(f"{name} = :{name}" for name in wanted) or "TRUE"
    query = f"SELECT {_COLUMNS} FROM sessions WHERE {where} ORDER BY updated DESC, id DESC LIMIT :limit"
    rows = db.execute(query, {**wanted, "limit": -1 if limit is None else limit})
    return [_record(row) for row in rows]


def length(db: sqlite3.Connection, session_id: str) -> int:
    """Return how many messages the history has."""
    return int(stored(db, session_id)["message_count"])


def read(db: sqlite3.Connection, session_id: str, start: int, stop: int | None) -> list[Message]:
    """Return the messages from `start` up to `stop`, as far as the history goes."""
    row = stored(db, session_id)
    count = row["message_count"]
    try:
        return histories.read(db, row["history"], max(0, start), count if stop is None else min(stop, count))
    except Damage as damage:
        raise Damage(f"{damage}; see: amplifier session repair {session_id}") from None


def delete(db: sqlite3.Connection, session_id: str) -> None:
    """Remove the row and the messages that no fork shares; those of a damaged row stay, as it may name another's."""
    try:
        history = stored(db, session_id)["history"]
    except Damage:
        history = None
    db.execute("DELETE FROM cuts WHERE session_id = ?", (session_id,))
    db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
    if history is not None:
        histories.release(db, history)


def stored(db: sqlite3.Connection, session_id: str) -> dict[str, Any]:
    """Return the columns of a session. Raises `SessionNotFound`, `Damage`."""
    row = db.execute(f"SELECT {_COLUMNS} FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        _look_past_the_index(db, session_id)
        raise SessionNotFound(session_id)
    return dict(zip(_NAMES, _verified(row), strict=True))


def change(db: sqlite3.Connection, row: Mapping[str, Any], changes: Mapping[str, Column]) -> None:
    """Set columns of a row that `stored` returned."""
    db.execute(_changing(tuple(changes)), _sealed({**row, **changes}))


def _refuse_a_circle(db: sqlite3.Connection, session_id: Any, parent_id: Any) -> None:
    """Raise `SessionConflict` for a parent that is the session or descends from it; ask first whether any session does.

    One does when it names a parent that was deleted, and the id is used again.
    """
    named = "SELECT 1 FROM sessions WHERE parent_id = ?"
    if parent_id is None or (parent_id != session_id and not db.execute(named, (session_id,)).fetchone()):
        return
    if db.execute(_ABOVE, {"parent": parent_id, "session_id": session_id}).fetchone():
        raise SessionConflict(
            session_id,
            f"session '{session_id}' cannot have the parent '{parent_id}', which is the session itself or descends "
            f"from it. Choose another id",
        )


def _sealed(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "digest": checksum(*_in_order(row))}


@cache
def _changing(names: tuple[str, ...]) -> str:
    assignments = ", ".join(f"{name} = :{name}" for name in (*names, "digest"))
    return f"UPDATE sessions SET {assignments} WHERE session_id = :session_id"


def _verified(row: Sequence[Any]) -> Sequence[Any]:
    *columns, digest = row
    if checksum(*columns) != digest:
        raise Damage(f"the record of session {columns[0]!r} is not what was written; deleting it leaves the others")
    return columns


def _record(row: Sequence[Any]) -> SessionRecord:
    return SESSIONS.item(_verified(row)[:-1])


def _look_past_the_index(db: sqlite3.Connection, session_id: str) -> None:
    """Raise `Damage` when the session is there and only the index of the ids has lost it."""
    if db.execute("SELECT 1 FROM sessions NOT INDEXED WHERE session_id = ?", (session_id,)).fetchone():
        raise Damage(f"the index of the session ids does not know '{session_id}'")


def _fork_point(count: int, at: Any) -> int:
    point = count if at is None else int(at)
    if not 0 <= point <= count:
        raise IndexError(f"fork point {point} is not within 0 and {count}")
    return point
