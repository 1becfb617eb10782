"""Store events and deliveries, one function for each operation on a connection.

    pending → claimed → done | dead        nack: claimed → pending
    pending | claimed | dead → skipped     redeliver: dead | refused | skipped → pending

Invariants: a claim raises `epoch`, so at most one worker holds a delivery; `advance`, the fence, changes a row only in
state `claimed` and under the worker's epoch. After the end of its lease a delivery may be claimed again. The caller
runs each function in one transaction.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import DeliveryConflict, DeliveryNotFound, StaleEpoch
from amplifier_core.storage import DeliveryCounts
from amplifier_core.storage_records import CLOCK_SLACK

from .admission import OPEN, WAITS_AND_IS_HELD, admit, let_next, line_up, skip
from .counting import FINISHED
from .faults import IndexDamage
from .rows import DELIVERIES, EVENTS, StateRows, encode, pause_collection
from .sessions import AFTER, update
from .values import Column, loads, moment, unplain

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Admission, Delivery

    from .documents import Change

_SLACK = CLOCK_SLACK // timedelta(microseconds=1)
_CLAIM = f"""
UPDATE deliveries
SET state = 'claimed', attempts = attempts + 1, epoch = epoch + 1, owner = :owner, lease_until = :lease_until,
    session_id = coalesce(session_id, :session_id), settle_key = NULL, updated = :now
WHERE id = (
    SELECT id FROM deliveries AS this
    WHERE project = :project AND queue = :queue AND {OPEN} AND waits = 0
        AND (available_at <= :now OR updated > :now + {_SLACK}) AND lease_until <= :now
        AND (key IS NULL OR NOT EXISTS (
            SELECT 1 FROM deliveries AS later
            WHERE later.project = :project AND later.queue = :queue AND later.key = this.key
                AND later.waits = {WAITS_AND_IS_HELD} AND later.state = 'claimed' AND later.lease_until > :now
        ))
    ORDER BY priority DESC, available_at, id LIMIT 1
)
RETURNING {DELIVERIES.columns}
"""

_KEEP_STATE = """INSERT INTO trigger_states (trigger, key, value) VALUES (?, ?, ?)
ON CONFLICT (trigger, key) DO UPDATE SET value = excluded.value"""
_TRIGGER = "SELECT id FROM triggers WHERE project = ? AND trigger = ?"

_ONCE = "ON CONFLICT (project, queue, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING"
_KNOWN = "SELECT 1 FROM deliveries WHERE project = :project AND queue = :queue AND dedupe_key = :dedupe_key"

_REVIVE = f"""
UPDATE deliveries
SET state = 'pending', attempts = 0, reason = NULL, available_at = :now, updated = :now, settle_key = NULL,
    waits = :waits
WHERE id = :id RETURNING {DELIVERIES.columns}
"""

_RECEIVE = """INSERT INTO received (origin, event_id, sequence, at) VALUES (:origin, :event_id, :sequence, :at)
    ON CONFLICT DO NOTHING"""

_NEXT_DUE = f"""
SELECT min(available_at) FROM deliveries
WHERE project = :project AND queue = :queue AND {OPEN} AND waits = 0 AND state = 'pending' AND available_at > :now
"""

# One step through an index for each queue with an open delivery, however many there are in it.
_DUE_QUEUES = f"""
WITH RECURSIVE open (queue) AS (
    SELECT min(queue) FROM deliveries WHERE project = :project AND {OPEN}
    UNION ALL
    SELECT (SELECT min(queue) FROM deliveries WHERE project = :project AND queue > open.queue AND {OPEN})
    FROM open WHERE queue IS NOT NULL
)
SELECT queue FROM open WHERE queue IS NOT NULL AND EXISTS (
    SELECT 1 FROM deliveries WHERE project = :project AND deliveries.queue = open.queue AND {OPEN} AND waits = 0
        AND (available_at <= :now OR updated > :now + {_SLACK}) AND lease_until <= :now
)
"""

_BEGINNING = "SELECT id FROM deliveries WHERE {0} >= :first AND {0} < :after ORDER BY id DESC LIMIT :limit"

_WAITING = f"""
SELECT project, queue, trigger, state, count(*), max(created), min(created) FROM deliveries WHERE {{}} AND {OPEN}
GROUP BY project, queue, trigger, state
"""
_COUNTED = "SELECT project, queue, trigger, state, count FROM delivery_counts WHERE {} AND count > 0"
_NEWEST = f"""SELECT max(created) FROM deliveries
    WHERE project = ? AND queue = ? AND trigger = ? AND state = ? AND {FINISHED}"""

# A query for one state repeats the condition of a partial index, so that SQLite uses this index. Most deliveries are
# done: for them the newest of all rows are read instead.
_AMONG = {"pending": OPEN, "claimed": OPEN, "done": "TRUE"}


def emit(db: sqlite3.Connection, rows: Sequence[Mapping[str, Column]]) -> list[int]:
    """Append to the log; return the sequences."""
    return [int(db.execute(f"INSERT INTO events {EVENTS.insert}", row).lastrowid or 0) for row in rows]


def receive(db: sqlite3.Connection, row: Mapping[str, Column], origin: Column, now: int) -> int | None:
    """Append an event of another site to the log; return its sequence, None if it came from this `origin` before."""
    values = {"origin": origin, "event_id": row["event_id"], "sequence": last_sequence(db) + 1, "at": now}
    return emit(db, [row])[0] if db.execute(_RECEIVE, values).rowcount else None


def events(db: sqlite3.Connection, since: int, limit: int, wanted: Mapping[str, Column]) -> list[SessionEvent]:
    """Return logged events after `since` with these column values, oldest first."""
    where = f"sequence > :since AND {_all(wanted)}"
    query = f"SELECT {EVENTS.columns} FROM events WHERE {where} ORDER BY sequence LIMIT :limit"
    return [EVENTS.item(row) for row in db.execute(query, {**wanted, "since": since, "limit": limit})]


def find_events(db: sqlite3.Connection, prefix: str, limit: int) -> list[SessionEvent]:
    """Return logged events with ids beginning with `prefix`, in the order of their ids."""
    within = "event_id >= ? AND event_id < ?"
    query = f"SELECT {EVENTS.columns} FROM events WHERE {within} ORDER BY event_id LIMIT ?"
    return [EVENTS.item(row) for row in db.execute(query, (prefix, prefix + AFTER, limit))]


def last_sequence(db: sqlite3.Connection) -> int:
    """Return the last sequence given out, even when its event is no longer kept."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return int(row[0]) if row else 0


def enqueue(
    db: sqlite3.Connection, row: Mapping[str, Column], states: Sequence[StateRows], admission: Admission | None
) -> Mapping[str, Column] | None:
    """Store a delivery and its trigger's state; return the row, None when its `dedupe_key` is known to the queue."""
    for state in states:
        save_trigger_state(db, row["project"], row["trigger"], state)
    if admission is not None and row["state"] == "pending":
        if db.execute(_KNOWN, row).fetchone():
            return None
        row = {**row, **admit(db, row, admission)}
    insert = f"({', '.join(row)}) VALUES ({', '.join(':' + name for name in row)})"
    return row if db.execute(f"INSERT INTO deliveries {insert} {_ONCE}", row).rowcount else None


def trigger_state(db: sqlite3.Connection, project: Column, trigger: Column) -> dict[str, Any]:
    """Return the stored state, {} without one."""
    query = f"SELECT key, value FROM trigger_states WHERE trigger = ({_TRIGGER})"
    return {unplain(key): loads(value) for key, value in db.execute(query, (project, trigger))}


def save_trigger_state(db: sqlite3.Connection, project: Column, trigger: Column, state: StateRows) -> None:
    """Store rows of a state, in place of all others or beside them; a row of None is deleted."""
    db.execute("INSERT OR IGNORE INTO triggers (project, trigger) VALUES (?, ?)", (project, trigger))
    [(its_id,)] = db.execute(_TRIGGER, (project, trigger)).fetchall()
    if not state.merge:
        db.execute("DELETE FROM trigger_states WHERE trigger = ?", (its_id,))
    gone = [(its_id, key) for key, value in state.rows if value is None]
    kept = [(its_id, key, value) for key, value in state.rows if value is not None]
    db.executemany("DELETE FROM trigger_states WHERE trigger = ? AND key = ?", gone)
    db.executemany(_KEEP_STATE, kept)


def claim(db: sqlite3.Connection, values: Mapping[str, Column]) -> Delivery | None:
    """Take the due delivery with the highest priority."""
    rows = db.execute(_CLAIM, values).fetchall()
    return DELIVERIES.item(rows[0]) if rows else None


def advance(db: sqlite3.Connection, delivery: Delivery, changes: Mapping[str, Column]) -> None:
    """Change a delivery still claimed under this epoch. Raises `StaleEpoch`."""
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    mine = "delivery_id = :its_id AND epoch = :its_epoch AND state = 'claimed'"
    values = {**changes, "its_id": delivery.delivery_id, "its_epoch": delivery.epoch}
    if not db.execute(f"UPDATE deliveries SET {assignments} WHERE {mine}", values).rowcount:
        raise StaleEpoch(delivery.delivery_id, delivery.epoch)
    if delivery.key is not None and changes.get("state", "pending") != "pending":
        let_next(db, encode({name: getattr(delivery, name) for name in ("project", "queue", "key")}))


def finish(
    db: sqlite3.Connection,
    delivery: Delivery,
    changes: Mapping[str, Column],
    emits: Sequence[Mapping[str, Column]],
    session_id: str | None = None,
    session: Mapping[str, Column] | None = None,
    documents: Sequence[Change] = (),
) -> list[int]:
    """Change a delivery as `advance` does, documents, its session's row, and append to the log; return the sequences.

    Raises `StaleEpoch`, `DocumentConflict`.
    """
    advance(db, delivery, changes)
    for change in documents:
        change.make(db)
    if session_id is not None and session:
        update(db, session_id, session)
    return emit(db, emits)


def release(db: sqlite3.Connection, project: Column, now: int) -> int:
    """Make the project's claimed deliveries due; return how many."""
    query = f"""UPDATE deliveries SET state = 'pending', lease_until = 0, available_at = min(available_at, :now),
        updated = :now WHERE project = :project AND state = 'claimed' AND {OPEN}"""
    return db.execute(query, {"project": project, "now": now}).rowcount


def deliveries(db: sqlite3.Connection, wanted: Mapping[str, Column], limit: int) -> list[Delivery]:
    """Return deliveries with these column values, newest first."""
    among = _AMONG.get(str(wanted["state"]), FINISHED) if "state" in wanted else "TRUE"
    where = f"{_all(wanted)} AND {among}"
    query = f"SELECT {DELIVERIES.columns} FROM deliveries WHERE {where} ORDER BY id DESC LIMIT :limit"
    with pause_collection():
        return [DELIVERIES.item(row) for row in db.execute(query, {**wanted, "limit": limit})]


def find_deliveries(db: sqlite3.Connection, prefix: str, limit: int) -> list[Delivery]:
    """Return deliveries with an id beginning with `prefix`, newest first, at most `limit` for each kind of id."""
    values = {"first": prefix, "after": prefix + AFTER, "limit": limit}
    kinds = ("delivery_id", "event_id", "session_id")
    found = {row for kind in kinds for row in db.execute(_BEGINNING.format(kind), values)}
    marks = ", ".join("?" * len(found))
    query = f"SELECT {DELIVERIES.columns} FROM deliveries WHERE id IN ({marks}) ORDER BY id DESC"
    return [DELIVERIES.item(row) for row in db.execute(query, [key for (key,) in found])]


def next_due(db: sqlite3.Connection, wanted: Mapping[str, Column], now: int) -> datetime | None:
    """Return the next time a pending delivery of a queue comes due."""
    [(due,)] = db.execute(_NEXT_DUE, {**wanted, "now": now})
    return None if due is None else moment(due)


def due_queues(db: sqlite3.Connection, project: Column, now: int) -> set[str]:
    """Return the queues of a project with a delivery to claim."""
    return {unplain(queue) for (queue,) in db.execute(_DUE_QUEUES, {"project": project, "now": now})}


def delivery_counts(db: sqlite3.Connection, wanted: Mapping[str, Column]) -> list[DeliveryCounts]:
    """Count the deliveries of each trigger by state, among those with these column values."""
    found: dict[tuple[str, ...], list[Sequence[Any]]] = {}
    waiting = db.execute(_WAITING.format(_all(wanted)), wanted)
    for *names, state, count, newest, oldest in (*_count_finished(db, wanted), *waiting):
        found.setdefault(tuple(map(unplain, names)), []).append((state, count, newest, oldest))
    counts = []
    for (project, queue, trigger), states in sorted(found.items()):
        newest = moment(max(newest for _, _, newest, _ in states))
        oldest = min((oldest for *_, oldest in states if oldest is not None), default=None)
        since = None if oldest is None else moment(oldest)
        by_state = {state: count for state, count, _, _ in states}
        counts.append(DeliveryCounts(project, queue, trigger, by_state, newest, since))
    return counts


def redeliver(db: sqlite3.Connection, delivery_id: Column, now: int) -> Delivery:
    """Make a finished delivery due again."""
    values = {**_standing(db, delivery_id, ("dead", "refused", "skipped"), "delivered again"), "now": now}
    row = db.execute(_REVIVE, {**values, "waits": line_up(db, values)}).fetchall()
    return DELIVERIES.item(row[0])


def make_due(db: sqlite3.Connection, delivery_id: Column, now: int) -> bool:
    """Make a pending delivery due now; return whether it was due later."""
    query = f"""UPDATE deliveries SET available_at = :now, updated = :now
        WHERE delivery_id = :delivery_id AND state = 'pending' AND {OPEN} AND available_at > :now"""
    return bool(db.execute(query, {"delivery_id": delivery_id, "now": now}).rowcount)


def drop(db: sqlite3.Connection, delivery_id: Column, reason: Column, now: int) -> Delivery:
    """Skip an unclaimed delivery."""
    skip(db, {**_standing(db, delivery_id, ("pending", "dead"), "dropped"), "created": now}, reason)
    query = f"SELECT {DELIVERIES.columns} FROM deliveries WHERE delivery_id = ?"
    return DELIVERIES.item(db.execute(query, (delivery_id,)).fetchone())


def _standing(db: sqlite3.Connection, delivery_id: Column, states: Sequence[str], what: str) -> dict[str, Column]:
    """Return the place of a delivery in its queue. Raises `DeliveryNotFound`, `DeliveryConflict` unless it is in one of
    the states.
    """
    query = "SELECT id, project, queue, key, state FROM deliveries WHERE delivery_id = ?"
    row = db.execute(query, (delivery_id,)).fetchone()
    if row is None:
        raise DeliveryNotFound(unplain(delivery_id))
    values = dict(zip(("id", "project", "queue", "key", "state"), row, strict=True))
    if values["state"] not in states:
        raise DeliveryConflict(unplain(delivery_id), values["state"], what)
    return values


def _count_finished(db: sqlite3.Connection, wanted: Mapping[str, Column]) -> Iterator[tuple[Any, ...]]:
    """Yield (project, queue, trigger, state, number, newest, None) of the finished deliveries."""
    for *group, count in db.execute(_COUNTED.format(_all(wanted)), wanted).fetchall():
        [(newest,)] = db.execute(_NEWEST, group)
        if newest is None or not isinstance(count, int):
            raise IndexDamage("the counts of deliveries name some that are not there")
        yield *group, count, newest, None


def _all(names: Iterable[str]) -> str:
    return " AND ".join(f"{name} = :{name}" for name in names) or "TRUE"
