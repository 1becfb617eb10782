"""Sessions and their messages: one function for each thing done to them, given a connection.

A session's row says how many messages its history has and, for a fork, whose first `fork_at` it shares; `messages`
holds those that are its own, numbered from `fork_at` on. Ids were validated by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict, SessionExists, SessionNotFound

from .rows import SESSIONS
from .values import loads, micros

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message

    from .values import Column

# From the session towards its sources, no further than `start` needs; `stop` is where the reader of a segment ends.
_HISTORY = """
WITH RECURSIVE segment (id, source, start, stop) AS (
    SELECT id, fork_of, coalesce(fork_at, 0), :stop FROM sessions WHERE session_id = :session_id
    UNION ALL
    SELECT sessions.id, fork_of, coalesce(fork_at, 0), min(segment.stop, segment.start)
    FROM segment JOIN sessions ON sessions.session_id = segment.source
    WHERE segment.start > :start
)
SELECT position, body FROM segment CROSS JOIN messages
ON session = segment.id AND position >= :start AND position < segment.stop
"""


def create(db: sqlite3.Connection, row: Mapping[str, Column]) -> SessionRecord:
    """Insert a session; with `fork_of`, one that shares its source's messages."""
    fork_at = _fork_point(db, str(row["fork_of"]), row["fork_at"]) if row["fork_of"] is not None else None
    row = {**row, "fork_at": fork_at, "message_count": fork_at or 0}
    if not db.execute(f"INSERT INTO sessions {SESSIONS.insert} ON CONFLICT (session_id) DO NOTHING", row).rowcount:
        raise SessionExists(str(row["session_id"]))
    return get(db, str(row["session_id"]))


def append(db: sqlite3.Connection, session_id: str, bodies: Sequence[Column], at: int, now: datetime) -> int:
    """Add messages at the end, which must be at `at`; return the new count."""
    session, count = _one(db, "id, message_count", session_id)
    if count != at:
        raise SessionConflict(
            session_id,
            f"session '{session_id}' has {count} messages, not {at}: somebody else wrote it. Resume it to go on",
        )
    if bodies:
        rows = [(session, position, body) for position, body in enumerate(bodies, at)]
        db.executemany("INSERT INTO messages (session, position, body) VALUES (?, ?, ?)", rows)
        counted = "UPDATE sessions SET message_count = ?, updated = ? WHERE id = ?"
        db.execute(counted, (at + len(bodies), micros(now), session))
    return at + len(bodies)


def update(db: sqlite3.Connection, session_id: str, changes: Mapping[str, Column]) -> None:
    """Set columns of the row."""
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    values = {**changes, "session_id": session_id}
    if not db.execute(f"UPDATE sessions SET {assignments} WHERE session_id = :session_id", values).rowcount:
        raise SessionNotFound(session_id)


def get(db: sqlite3.Connection, session_id: str) -> SessionRecord:
    """Return one record."""
    return SESSIONS.item(_one(db, SESSIONS.columns, session_id))


def find(db: sqlite3.Connection, prefix: str, limit: int) -> list[SessionRecord]:
    """Return those whose id begins with `prefix`, newest first."""
    query = (
        f"SELECT {SESSIONS.columns} FROM sessions WHERE session_id >= ? AND session_id < ? "
        f"ORDER BY created DESC, id DESC LIMIT ?"
    )
    # an id is ASCII, so the last character of the basic plane comes after whatever follows the prefix
    return [SESSIONS.item(row) for row in db.execute(query, (prefix, prefix + "\uffff", limit))]


def listed(db: sqlite3.Connection, project: Column, limit: int | None) -> list[SessionRecord]:
    """Return those of a project (None: of all), the last updated first."""
    where = "" if project is None else "WHERE project = :project"
    query = f"SELECT {SESSIONS.columns} FROM sessions {where} ORDER BY updated DESC, id DESC LIMIT :limit"
    rows = db.execute(query, {"project": project, "limit": -1 if limit is None else limit})
    return [SESSIONS.item(row) for row in rows]


def length(db: sqlite3.Connection, session_id: str) -> int:
    """Return how many messages the history has."""
    return int(_one(db, "message_count", session_id)[0])


def read(db: sqlite3.Connection, session_id: str, start: int, stop: int) -> list[Message] | None:
    """Return the messages from `start` up to `stop`, both within the history; None when one of them is missing."""
    if start >= stop:
        return []
    rows = db.execute(_HISTORY, {"session_id": session_id, "start": start, "stop": stop}).fetchall()
    rows.sort(key=lambda row: row[0])  # they come by segments, each in order: merging a few runs is linear
    if [position for position, _ in rows] != list(range(start, stop)):
        return None
    return [loads(body) for _, body in rows]


def _fork_point(db: sqlite3.Connection, source: str, at: Any) -> int:
    count = length(db, source)
    point = count if at is None else int(at)
    if not 0 <= point <= count:
        raise IndexError(f"fork point {point} is not within 0 and {count}")
    return point


def _one(db: sqlite3.Connection, columns: str, session_id: str) -> Sequence[Any]:
    row: Sequence[Any] | None = db.execute(
        f"SELECT {columns} FROM sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return row
