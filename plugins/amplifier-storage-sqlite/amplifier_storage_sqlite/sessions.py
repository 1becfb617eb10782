"""Store sessions, one function for each operation on a connection; the caller has validated the ids.

A row holds the record, the id of the session's history, and a checksum of both. The caller runs each function in one
transaction: record and messages change together.
"""

from __future__ import annotations

from contextlib import suppress
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Any
from zlib import crc32

from amplifier_core.errors import SessionConflict, SessionExists, SessionNotFound
from amplifier_core.json_values import to_json
from amplifier_core.storage import SessionRecord

from . import histories
from .faults import DamageError, IndexDamage
from .opening import Connection
from .ordering import newest, next_number
from .rows import SESSIONS, pause_collection
from .values import checksum, join_columns, micros, plain, unplain

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from amplifier_core.transcript import Message

    from .values import Column

NAMES = (*SESSIONS.names, "history")
"""The columns under the checksum, in its order."""
COLUMNS = ", ".join((*NAMES, "digest"))
_in_order = itemgetter(*NAMES)
_COUNT, _UPDATED, _HISTORY = map(NAMES.index, ("message_count", "updated", "history"))
_ADVANCE = "UPDATE sessions SET message_count = ?, updated = ?, digest = ? WHERE session_id = ?"
_ADVANCE_LISTED = "UPDATE sessions SET message_count = ?, updated = ?, digest = ?, recent = ? WHERE session_id = ?"
TRUSTED = 60.0
AFTER = "\uffff"
"""Appended to a prefix, this sorts after every id with the prefix: ids are ASCII."""
_INSERT = (
    f"INSERT INTO sessions ({COLUMNS}, recent) VALUES ({', '.join(':' + name for name in NAMES)}, :digest, :recent) "
    "ON CONFLICT (session_id) DO NOTHING"
)

_BELOW = f"""SELECT {COLUMNS} FROM sessions WHERE id IN (
        SELECT id FROM sessions WHERE parent_id = :above
        UNION SELECT fork.id FROM sessions AS source JOIN histories ON histories.source = source.history
        JOIN sessions AS fork ON fork.history = histories.id WHERE source.session_id = :above
    ) AND coalesce(fork_of, parent_id) = :above ORDER BY id LIMIT :limit"""  # no index has `fork_of`
_SPAWNED = "parent_id = :parent_id AND fork_of IS NULL AND event_id IS NULL"
_COUNT_SPAWNED = f"SELECT count(*) FROM sessions WHERE {_SPAWNED}"
_READ = f"SELECT {COLUMNS}, recent FROM sessions WHERE session_id = ?"

_EXPIRED = """
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


class KnownSession:
    """Hold the record of a session as the writer left it; for a turn, the unchanged columns are sealed once.

    Invariants: a turn changes `updated` and `message_count` alone, which are neighbours in `NAMES`. The session has a
    number: see `ordering`.
    """

    __slots__ = ("_after", "_before", "_columns", "_is_sealed", "_updated", "count", "history")

    def __init__(self, columns: Sequence[Any]) -> None:
        self.history: int = columns[_HISTORY]
        self.count: int = columns[_COUNT]
        self._updated: int = columns[_UPDATED]
        self._columns = columns
        self._is_sealed, self._before, self._after = False, 0, b""

    def seal(self, updated: int, count: int) -> int:
        """Return the `checksum` of the record after a turn."""
        if not self._is_sealed:  # not before a turn: many a new session has none
            self._before = crc32(join_columns([*self._columns[:_UPDATED], ""]))
            self._after = join_columns(["", *self._columns[_COUNT + 1 :]])
            self._is_sealed = True
        self._updated = updated
        return crc32(b"%d\0%d%b" % (updated, count, self._after), self._before)

    def read_row(self) -> dict[str, Any]:
        """Return the columns of the record by their names."""
        row = dict(zip(NAMES, self._columns, strict=True))
        row["updated"], row["message_count"] = self._updated, self.count
        return row


def create(db: sqlite3.Connection, row: Mapping[str, Column]) -> SessionRecord:
    """Insert a session; with `fork_of`, its history shares the source's messages."""
    source: int | None = None
    fork_at: Any = None
    if row["fork_of"] is not None:
        source_row = _read_row(db, str(row["fork_of"]))
        source, count, fork_at = source_row[_HISTORY], source_row[_COUNT], row["fork_at"]
        fork_at = count if fork_at is None else int(fork_at)
        if not 0 <= fork_at <= count:
            raise IndexError(f"fork point {fork_at} is not within 0 and {count}")
    _refuse_circle(db, row["session_id"], row["parent_id"])
    history = histories.begin(db, source, fork_at or 0)
    inserted = seal({**row, "fork_at": fork_at, "message_count": fork_at or 0, "history": history})
    if not db.execute(_INSERT, {**inserted, "recent": next_number(db)}).rowcount:
        raise SessionExists(str(row["session_id"]))
    getattr(db, "known_sessions", {})[row["session_id"]] = KnownSession(_in_order(inserted))
    return SESSIONS.item([inserted[name] for name in SESSIONS.names])


def append(db: sqlite3.Connection, session_id: str, bodies: Sequence[Column], at: int, now: datetime) -> int:
    """Add messages at the end, position `at`; return the new count.

    The connection of the writer knows the records of the last turns: see `WritingConnection`.
    """
    known = getattr(db, "known_sessions", {})
    session, is_listed = known.pop(session_id, None), False
    if session is None:
        *columns, number = _read_row(db, session_id)
        session, is_listed = KnownSession(columns), number is None
    if session.count != at:
        raise SessionConflict(
            session_id,
            f"session '{session_id}' has {session.count} messages, not {at}: somebody else wrote it. "
            "Resume it to go on",
        )
    if not bodies:
        return at
    histories.extend(db, session.history, at, bodies)
    session.count = count = at + len(bodies)
    updated = micros(now)
    changed = (count, updated, session.seal(updated, count))
    if is_listed:
        changes = db.execute(_ADVANCE_LISTED, (*changed, next_number(db), session_id))
    else:
        changes = db.execute(_ADVANCE, (*changed, session_id))
    if not changes.rowcount:
        raise IndexDamage(f"the index of the session ids does not know '{session_id}'")
    known[session_id] = session
    return count


def update(db: sqlite3.Connection, session_id: str, changes: Mapping[str, Column]) -> None:
    """Set columns of the row; the connection of the writer knows those of the last turns: see `WritingConnection`."""
    known = getattr(db, "known_sessions", {})
    session = known.pop(session_id, None)
    if session is None:
        change(db, load_row(db, session_id), changes)
        return
    changed = seal({**session.read_row(), **changes})
    assignments = ", ".join(f"{name} = :{name}" for name in (*changes, "digest"))
    if not db.execute(f"UPDATE sessions SET {assignments} WHERE session_id = :session_id", changed).rowcount:
        raise IndexDamage(f"the index of the session ids does not know '{session_id}'")
    known[session_id] = KnownSession(_in_order(changed))


def get(db: sqlite3.Connection, session_id: str) -> SessionRecord:
    """Return one record."""
    return SESSIONS.item(_read_row(db, session_id)[:_HISTORY])  # `NAMES` begins with those of a record


def find(db: sqlite3.Connection, prefix: str, limit: int) -> list[SessionRecord]:
    """Return sessions with ids beginning with `prefix`, newest first."""
    within = "session_id >= ? AND session_id < ?"
    query = f"SELECT {COLUMNS} FROM sessions WHERE {within} ORDER BY created DESC, id DESC LIMIT ?"
    return [listed_record(db, row) for row in db.execute(query, (prefix, prefix + AFTER, limit))]


def find_expired(db: sqlite3.Connection, before: int, keep: int, limit: int) -> list[str]:
    """Return the ids of finished sessions nobody needs, the oldest first."""
    return [session_id for (session_id,) in db.execute(_EXPIRED, {"before": before, "keep": keep, "limit": limit})]


def list_sessions(db: sqlite3.Connection, wanted: Mapping[str, Column], limit: int | None) -> list[SessionRecord]:
    """Return sessions with these column values, the last updated first."""
    where = " AND ".join(f"{name} = :{name}" for name in wanted) or "TRUE"
    if "parent_id" in wanted or (limit is None and not wanted):
        return _list_all(db, where, wanted)[:limit]
    rows = db.execute(newest(COLUMNS, where), {**wanted, "limit": -1 if limit is None else limit})
    with pause_collection():
        return [_record_at(db, row) for row in rows]


def list_below(db: sqlite3.Connection, session_id: str, limit: int | None) -> list[SessionRecord]:
    """Return the sessions below a session, those above first."""
    found, above = dict[str, SessionRecord](), [session_id]
    for each in above:  # it grows meanwhile
        left = -1 if limit is None else limit - len(found)
        if not left:
            break
        for row in db.execute(_BELOW, {"above": each, "limit": left}).fetchall():
            record = listed_record(db, row)
            if record.session_id not in found and record.session_id != session_id:  # a circle, in a damaged store
                found[record.session_id] = record
                above.append(record.session_id)
    return list(found.values())


def list_with(
    db: sqlite3.Connection, member: str, wanted: Mapping[str, Column], limit: int | None
) -> list[SessionRecord]:
    """Return sessions with a member in their metadata and these column values, the last updated first."""
    where = " AND ".join([*(f"{name} = :{name}" for name in wanted), "instr(metadata, :named)"])
    found = _list_all(db, where, {**wanted, "named": plain(f"{to_json(member)}:", "member")})
    return [each for each in found if member in each.metadata][:limit]


def list_spawned(db: sqlite3.Connection, session_id: str) -> list[SessionRecord]:
    """Return the sessions spawned by a session, the last updated first."""
    return _list_all(db, _SPAWNED, {"parent_id": session_id})


def count_spawned(db: sqlite3.Connection, session_id: str) -> int:
    """Return how many sessions a session spawned."""
    return int(db.execute(_COUNT_SPAWNED, {"parent_id": session_id}).fetchone()[0])


def length(db: sqlite3.Connection, session_id: str) -> int:
    """Return how many messages the history has."""
    return int(load_row(db, session_id)["message_count"])


def read(db: sqlite3.Connection, session_id: str, start: int, stop: int | None) -> list[Message]:
    """Return the messages from `start` up to `stop`, as far as the history goes."""
    row = _read_row(db, session_id)
    count = row[_COUNT]
    try:
        return histories.read(db, row[_HISTORY], max(0, start), count if stop is None else min(stop, count))
    except DamageError as damage:
        raise DamageError(f"{damage}; see: amplifier session repair {session_id}") from None


def delete(db: sqlite3.Connection, session_id: str) -> None:
    """Delete a session, its unshared messages, and its texts in the log and in finished deliveries.

    With a damaged row the messages stay, as the row may name another history.
    """
    from . import session_texts
    from .forgetting import forget_texts

    try:
        history = load_row(db, session_id)["history"]
    except DamageError:
        history = None
    _forget(db, session_id)
    session_texts.forget(db, session_id)
    forget_texts(db, session_id)
    db.execute("DELETE FROM cuts WHERE session_id = ?", (session_id,))
    db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
    if history is not None:
        histories.release(db, history)


def load_row(db: sqlite3.Connection, session_id: str) -> dict[str, Any]:
    """Return the columns of a session, with its number. Raises `SessionNotFound`, `DamageError`."""
    return dict(zip((*NAMES, "recent"), _read_row(db, session_id), strict=True))


def _read_row(db: sqlite3.Connection, session_id: str) -> Sequence[Any]:
    """Return the columns of a session in the order of `NAMES`, then its number. Raises as `load_row` does."""
    row = db.execute(_READ, (session_id,)).fetchone()
    if row is None:
        if _has_index_lost(db, session_id):
            raise IndexDamage(f"the index of the session ids does not know '{session_id}'")
        raise SessionNotFound(session_id)
    *sealed, number = row
    return [*_verify(sealed), number]


def _has_index_lost(db: sqlite3.Connection, session_id: str) -> bool:
    """Return whether the row is there, and only the index of the ids does not know it.

    That reads the whole table, 40 ms for 100,000 sessions. So after a look that found nothing, a connection takes the
    index for whole for `TRUSTED` seconds: lists of events name many sessions that are deleted.
    """
    now = monotonic()
    if now < getattr(db, "whole_until", 0.0):
        return False
    if db.execute("SELECT 1 FROM sessions NOT INDEXED WHERE session_id = ?", (session_id,)).fetchone():
        return True
    if isinstance(db, Connection):
        db.whole_until = now + TRUSTED
    return False


def change(db: sqlite3.Connection, row: Mapping[str, Any], changes: Mapping[str, Column]) -> None:
    """Set columns of a row from `load_row`."""
    _forget(db, row["session_id"])
    changed = seal({**row, **changes})
    if row["recent"] is None:
        changes = {**changes, "recent": next_number(db)}
    assignments = ", ".join(f"{name} = :{name}" for name in (*changes, "digest"))
    db.execute(f"UPDATE sessions SET {assignments} WHERE session_id = :session_id", {**changed, **changes})


def _refuse_circle(db: sqlite3.Connection, session_id: Any, parent_id: Any) -> None:
    """Raise `SessionConflict` if the parent is the session itself or a descendant.

    A new session has descendants only if its id belonged to a deleted parent: this is asked first.
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


def _forget(db: sqlite3.Connection, session_id: str) -> None:
    getattr(db, "known_sessions", {}).pop(session_id, None)


def seal(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "digest": checksum(*_in_order(row))}


def _verify(row: Sequence[Any]) -> Sequence[Any]:
    *columns, digest = row
    if checksum(*columns) != digest:
        raise DamageError(
            f"the record of session {columns[0]!r} is not what was written; deleting it leaves the others"
        )
    return columns


def _list_all(db: sqlite3.Connection, where: str, wanted: Mapping[str, Column]) -> list[SessionRecord]:
    """Return sessions, the last updated first; one sort of all is cheaper than a walk in the order of an index."""
    rows = db.execute(f"SELECT {COLUMNS} FROM sessions WHERE {where} ORDER BY id DESC", wanted).fetchall()
    with suppress(TypeError):  # a damaged time
        rows.sort(key=itemgetter(_UPDATED), reverse=True)
    with pause_collection():
        return [listed_record(db, row) for row in rows]


def _record_at(db: sqlite3.Connection, row: Sequence[Any]) -> SessionRecord:
    """Return the record of a row of `newest`. Raises `IndexDamage` if the index has a wrong time."""
    *columns, at, _ = row
    record = listed_record(db, columns)
    if at != columns[_UPDATED] and columns[-1] == checksum(*columns[:-1]):
        raise IndexDamage(f"an index of the sessions has a wrong time for {columns[0]!r}")
    return record


def listed_record(db: sqlite3.Connection, row: Sequence[Any]) -> SessionRecord:
    """Return the record; a damaged one gets its error: a list neither fails nor hides it.

    A list takes some columns from its index. Raises `IndexDamage` when only the index has them wrong.
    """
    try:
        return SESSIONS.item(_verify(row)[:-1])
    except DamageError as damage:
        rows = db.execute(f"SELECT {COLUMNS} FROM sessions NOT INDEXED WHERE session_id = ?", (row[0],)).fetchall()
        if any(checksum(*columns) == digest for *columns, digest in rows):
            raise IndexDamage(f"an index of the sessions differs from the record of {row[0]!r}") from None
        return SessionRecord(str(unplain(row[0])), status="interrupted", error=f"the store is damaged: {damage}")
