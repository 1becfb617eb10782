"""Events and deliveries: one function for each thing done to them, given a connection.

A delivery is `pending`, then `claimed` by one worker under an epoch, then `done` or `dead`; a claim whose lease ran out
may be made again, and its epoch is over then.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import StaleEpoch
from amplifier_core.storage import Trimmed

from .rows import DELIVERIES, EVENTS
from .sessions import update
from .values import loads

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Delivery

    from .values import Column

_CLAIM = f"""
UPDATE deliveries
SET state = 'claimed', attempts = attempts + 1, epoch = epoch + 1, owner = :owner, lease_until = :lease_until,
    session_id = coalesce(session_id, :session_id), updated = :now
WHERE id = (
    SELECT id FROM deliveries
    WHERE project = :project AND lane = :lane AND state IN ('pending', 'claimed')
        AND available_at <= :now AND lease_until <= :now
    ORDER BY available_at, id LIMIT 1
)
RETURNING {DELIVERIES.columns}
"""

_OFFER = f"""
INSERT INTO deliveries (dedupe_key, {DELIVERIES.columns})
VALUES (:dedupe_key, {", ".join(":" + name for name in DELIVERIES.names)})
ON CONFLICT (project, lane, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
"""


def emit(db: sqlite3.Connection, rows: Sequence[Mapping[str, Column]]) -> list[int]:
    """Append to the log; return the sequences."""
    return [int(db.execute(f"INSERT INTO events {EVENTS.insert}", row).lastrowid or 0) for row in rows]


def events(db: sqlite3.Connection, since: int, limit: int) -> list[SessionEvent]:
    """Return logged events after `since`, oldest first."""
    query = f"SELECT {EVENTS.columns} FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"
    return [EVENTS.item(row) for row in db.execute(query, (since, limit))]


def last_sequence(db: sqlite3.Connection) -> int:
    """Return the last sequence given out, even when its event is no longer kept."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return int(row[0]) if row else 0


def offer(db: sqlite3.Connection, row: Mapping[str, Column], trigger_state: Column) -> bool:
    """Store a delivery and its trigger's state; return whether its `dedupe_key` is new to the lane."""
    if trigger_state is not None:
        save_trigger_state(db, row["project"], row["trigger"], trigger_state)
    return bool(db.execute(_OFFER, row).rowcount)


def trigger_state(db: sqlite3.Connection, project: Column, trigger: Column) -> dict[str, Any]:
    """Return the state stored last, {} when there is none."""
    query = "SELECT state FROM trigger_states WHERE project = ? AND trigger = ?"
    row = db.execute(query, (project, trigger)).fetchone()
    return loads(row[0]) if row else {}


def save_trigger_state(db: sqlite3.Connection, project: Column, trigger: Column, state: Column) -> None:
    """Store the state, in place of the one before."""
    db.execute("REPLACE INTO trigger_states (project, trigger, state) VALUES (?, ?, ?)", (project, trigger, state))


def claim(db: sqlite3.Connection, values: Mapping[str, Column]) -> Delivery | None:
    """Take the oldest delivery that is due."""
    rows = db.execute(_CLAIM, values).fetchall()
    return DELIVERIES.item(rows[0]) if rows else None


def advance(db: sqlite3.Connection, delivery: Delivery, changes: Mapping[str, Column]) -> None:
    """Change a delivery that is still claimed under this epoch."""
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    mine = "delivery_id = :its_id AND epoch = :its_epoch AND state = 'claimed'"
    values = {**changes, "its_id": delivery.delivery_id, "its_epoch": delivery.epoch}
    if not db.execute(f"UPDATE deliveries SET {assignments} WHERE {mine}", values).rowcount:
        raise StaleEpoch(delivery.delivery_id, delivery.epoch)


def finish(
    db: sqlite3.Connection,
    delivery: Delivery,
    changes: Mapping[str, Column],
    emits: Sequence[Mapping[str, Column]],
    session_id: str | None = None,
    session: Mapping[str, Column] | None = None,
) -> list[int]:
    """Change a delivery as `advance` does, its session's row, and append to the log; return the sequences."""
    advance(db, delivery, changes)
    if session_id is not None and session:
        update(db, session_id, session)
    return emit(db, emits)


def release(db: sqlite3.Connection, project: Column, now: int) -> int:
    """Make the project's claimed deliveries due; return how many."""
    query = """UPDATE deliveries SET state = 'pending', lease_until = 0, available_at = min(available_at, :now),
        updated = :now WHERE project = :project AND state = 'claimed'"""
    return db.execute(query, {"project": project, "now": now}).rowcount


def deliveries(db: sqlite3.Connection, wanted: Mapping[str, Column], limit: int) -> list[Delivery]:
    """Return those whose columns have the wanted values, newest first."""
    where = " AND ".join(f"{name} = :{name}" for name in wanted) or "TRUE"
    query = f"SELECT {DELIVERIES.columns} FROM deliveries WHERE {where} ORDER BY id DESC LIMIT :limit"
    return [DELIVERIES.item(row) for row in db.execute(query, {**wanted, "limit": limit})]


def trim(db: sqlite3.Connection, before: int, event_bytes: int) -> Trimmed:
    """Forget deliveries that were over by then, and the beginning of a log that is longer than `event_bytes`."""
    over = "state IN ('done', 'refused') AND updated < ?"
    forgotten = db.execute(f"DELETE FROM deliveries WHERE {over}", (before,)).rowcount
    return Trimmed(forgotten, _shorten(db, before, event_bytes))


def _shorten(db: sqlite3.Connection, before: int, event_bytes: int) -> int:
    last = _newest_too_many(db, event_bytes)
    recent = "SELECT sequence FROM events WHERE sequence <= ? AND timestamp >= ? ORDER BY sequence LIMIT 1"
    kept = db.execute(recent, (last, before)).fetchone()
    first = kept[0] if kept else last + 1
    return db.execute("DELETE FROM events WHERE sequence < ?", (first,)).rowcount


def _newest_too_many(db: sqlite3.Connection, event_bytes: int) -> int:
    """Return the sequence of the newest event that no longer fits, 0 when all do; look at none before it."""
    query = "SELECT sequence, length(CAST(data AS BLOB)) FROM events ORDER BY sequence DESC"
    left = event_bytes
    with closing(db.execute(query)) as newest_first:
        for sequence, size in newest_first:
            left -= size
            if left < 0:
                return int(sequence)
    return 0
