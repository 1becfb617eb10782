"""Events and deliveries: one function for each thing done to them, given a connection.

A delivery is `pending`, then `claimed` by one worker under an epoch, then `done` or `dead`; a claim whose lease ran out
may be made again, and its epoch is over then. One that is `skipped` is not delivered, whatever it was before.
"""

from __future__ import annotations

from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import DeliveryConflict, DeliveryNotFound, StaleEpoch
from amplifier_core.storage import Tally, Trimmed

from .admission import OPEN, WAITS_AND_IS_HELD, admitted, let_next, line_up, skip
from .rows import DELIVERIES, EVENTS, encode
from .sessions import AFTER, update
from .values import Column, loads, moment, unplain

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Admission, Delivery

_CLAIM = f"""
UPDATE deliveries
SET state = 'claimed', attempts = attempts + 1, epoch = epoch + 1, owner = :owner, lease_until = :lease_until,
    session_id = coalesce(session_id, :session_id), settle_key = NULL, updated = :now
WHERE id = (
    SELECT id FROM deliveries AS this
    WHERE project = :project AND lane = :lane AND {OPEN} AND waits = 0
        AND available_at <= :now AND lease_until <= :now
        AND (key IS NULL OR NOT EXISTS (
            SELECT 1 FROM deliveries AS later
            WHERE later.project = :project AND later.lane = :lane AND later.key = this.key
                AND later.waits = {WAITS_AND_IS_HELD} AND later.state = 'claimed' AND later.lease_until > :now
        ))
    ORDER BY priority DESC, available_at, id LIMIT 1
)
RETURNING {DELIVERIES.columns}
"""

_ONCE = "ON CONFLICT (project, lane, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING"
_KNOWN = "SELECT 1 FROM deliveries WHERE project = :project AND lane = :lane AND dedupe_key = :dedupe_key"

_REVIVE = f"""
UPDATE deliveries
SET state = 'pending', attempts = 0, reason = NULL, available_at = :now, updated = :now, settle_key = NULL,
    waits = :waits
WHERE id = :id RETURNING {DELIVERIES.columns}
"""

_NEXT_DUE = f"""
SELECT min(available_at) FROM deliveries
WHERE project = :project AND lane = :lane AND {OPEN} AND waits = 0 AND state = 'pending' AND available_at > :now
"""

_BEGINNING = "SELECT id FROM deliveries WHERE {0} >= :first AND {0} < :after ORDER BY id DESC LIMIT :limit"

_OVER = "state NOT IN ('pending', 'claimed')"

_WAITING = f"""
SELECT project, lane, trigger, state, count(*), max(created), min(created) FROM deliveries WHERE {{}} AND {OPEN}
GROUP BY project, lane, trigger, state
"""
_NEXT_OVER = f"""
SELECT project, lane, trigger, state FROM deliveries
WHERE (project, lane, trigger, state, created) > (?, ?, ?, ?, {2**63 - 1}) AND {_OVER}
ORDER BY project, lane, trigger, state, created LIMIT 1
"""
# two queries, which a range of an index answers; a GROUP BY over all of them takes four times as long
_ALIKE = f"FROM deliveries WHERE project = ? AND lane = ? AND trigger = ? AND state = ? AND {_OVER}"
_COUNT, _NEWEST = f"SELECT count(*) {_ALIKE}", f"SELECT max(created) {_ALIKE}"

# What a query for one state says besides, so that the index of those alone serves it. Those that are done are most of
# all: the newest of them are found from the newest of all.
_AMONG = {"pending": OPEN, "claimed": OPEN, "done": "TRUE", "refused": _OVER, "skipped": _OVER, "dead": _OVER}


def emit(db: sqlite3.Connection, rows: Sequence[Mapping[str, Column]]) -> list[int]:
    """Append to the log; return the sequences."""
    return [int(db.execute(f"INSERT INTO events {EVENTS.insert}", row).lastrowid or 0) for row in rows]


def events(db: sqlite3.Connection, since: int, limit: int, wanted: Mapping[str, Column]) -> list[SessionEvent]:
    """Return logged events after `since` whose columns have the wanted values, oldest first."""
    where = f"sequence > :since AND {_all(wanted)}"
    query = f"SELECT {EVENTS.columns} FROM events WHERE {where} ORDER BY sequence LIMIT :limit"
    return [EVENTS.item(row) for row in db.execute(query, {**wanted, "since": since, "limit": limit})]


def find_events(db: sqlite3.Connection, prefix: str, limit: int) -> list[SessionEvent]:
    """Return the logged events whose id begins with `prefix`, in the order of their ids."""
    within = "event_id >= ? AND event_id < ?"
    query = f"SELECT {EVENTS.columns} FROM events WHERE {within} ORDER BY event_id LIMIT ?"
    return [EVENTS.item(row) for row in db.execute(query, (prefix, prefix + AFTER, limit))]


def last_sequence(db: sqlite3.Connection) -> int:
    """Return the last sequence given out, even when its event is no longer kept."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return int(row[0]) if row else 0


def offer(
    db: sqlite3.Connection, row: Mapping[str, Column], trigger_state: Column, admission: Admission | None
) -> Mapping[str, Column] | None:
    """Store a delivery and its trigger's state; return the row, None when its `dedupe_key` is known to the lane."""
    if trigger_state is not None:
        save_trigger_state(db, row["project"], row["trigger"], trigger_state)
    if admission is not None and row["state"] == "pending":
        if db.execute(_KNOWN, row).fetchone():
            return None
        row = {**row, **admitted(db, row, admission)}
    return row if db.execute(_offering(tuple(row)), row).rowcount else None


def trigger_state(db: sqlite3.Connection, project: Column, trigger: Column) -> dict[str, Any]:
    """Return the state stored last, {} when there is none."""
    query = "SELECT state FROM trigger_states WHERE project = ? AND trigger = ?"
    row = db.execute(query, (project, trigger)).fetchone()
    return loads(row[0]) if row else {}


def save_trigger_state(db: sqlite3.Connection, project: Column, trigger: Column, state: Column) -> None:
    """Store the state, in place of the one before."""
    db.execute("REPLACE INTO trigger_states (project, trigger, state) VALUES (?, ?, ?)", (project, trigger, state))


def claim(db: sqlite3.Connection, values: Mapping[str, Column]) -> Delivery | None:
    """Take the first of those with the highest priority that are due."""
    rows = db.execute(_CLAIM, values).fetchall()
    return DELIVERIES.item(rows[0]) if rows else None


def advance(db: sqlite3.Connection, delivery: Delivery, changes: Mapping[str, Column]) -> None:
    """Change a delivery that is still claimed under this epoch."""
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    mine = "delivery_id = :its_id AND epoch = :its_epoch AND state = 'claimed'"
    values = {**changes, "its_id": delivery.delivery_id, "its_epoch": delivery.epoch}
    if not db.execute(f"UPDATE deliveries SET {assignments} WHERE {mine}", values).rowcount:
        raise StaleEpoch(delivery.delivery_id, delivery.epoch)
    if delivery.key is not None and changes.get("state", "pending") != "pending":
        let_next(db, encode({name: getattr(delivery, name) for name in ("project", "lane", "key")}))


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
    query = f"""UPDATE deliveries SET state = 'pending', lease_until = 0, available_at = min(available_at, :now),
        updated = :now WHERE project = :project AND state = 'claimed' AND {OPEN}"""
    return db.execute(query, {"project": project, "now": now}).rowcount


def deliveries(db: sqlite3.Connection, wanted: Mapping[str, Column], limit: int) -> list[Delivery]:
    """Return those whose columns have the wanted values, newest first."""
    among = _AMONG.get(str(wanted["state"]), "FALSE") if "state" in wanted else "TRUE"
    where = f"{_all(wanted)} AND {among}"
    query = f"SELECT {DELIVERIES.columns} FROM deliveries WHERE {where} ORDER BY id DESC LIMIT :limit"
    return [DELIVERIES.item(row) for row in db.execute(query, {**wanted, "limit": limit})]


def find_deliveries(db: sqlite3.Connection, prefix: str, limit: int) -> list[Delivery]:
    """Return those of which an id begins with `prefix`, newest first: at most so many for each kind of id."""
    values = {"first": prefix, "after": prefix + AFTER, "limit": limit}
    kinds = ("delivery_id", "event_id", "session_id")
    found = {row for kind in kinds for row in db.execute(_BEGINNING.format(kind), values)}
    marks = ", ".join("?" * len(found))
    query = f"SELECT {DELIVERIES.columns} FROM deliveries WHERE id IN ({marks}) ORDER BY id DESC"
    return [DELIVERIES.item(row) for row in db.execute(query, [key for (key,) in found])]


def next_due(db: sqlite3.Connection, wanted: Mapping[str, Column], now: int) -> datetime | None:
    """Return when the next pending one of a lane comes due that waits for no other."""
    [(due,)] = db.execute(_NEXT_DUE, {**wanted, "now": now})
    return None if due is None else moment(due)


def tallies(db: sqlite3.Connection, wanted: Mapping[str, Column]) -> list[Tally]:
    """Return how the deliveries of each trigger fare, of those whose columns have the wanted values."""
    found: dict[tuple[str, ...], list[Sequence[Any]]] = {}
    for *names, state, count, newest, oldest in [
        *_over(db, wanted),
        *db.execute(_WAITING.format(_all(wanted)), wanted),
    ]:
        found.setdefault(tuple(map(unplain, names)), []).append((state, count, newest, oldest))
    return [_tally(names, found[names]) for names in sorted(found)]


def redeliver(db: sqlite3.Connection, delivery_id: Column, now: int) -> Delivery:
    """Make a delivery that is over due again."""
    values = {**_standing(db, delivery_id, ("dead", "refused", "skipped"), "delivered again"), "now": now}
    row = db.execute(_REVIVE, {**values, "waits": line_up(db, values)}).fetchall()
    return DELIVERIES.item(row[0])


def drop(db: sqlite3.Connection, delivery_id: Column, reason: Column, now: int) -> Delivery:
    """Skip a delivery that nobody has claimed."""
    skip(db, {**_standing(db, delivery_id, ("pending", "dead"), "dropped"), "created": now}, reason)
    query = f"SELECT {DELIVERIES.columns} FROM deliveries WHERE delivery_id = ?"
    return DELIVERIES.item(db.execute(query, (delivery_id,)).fetchone())


def trim(db: sqlite3.Connection, before: int, event_bytes: int) -> Trimmed:
    """Forget deliveries that were over by then, and the beginning of a log that is longer than `event_bytes`."""
    over = f"state IN ('done', 'refused', 'skipped') AND {_OVER} AND updated < ?"
    forgotten = db.execute(f"DELETE FROM deliveries WHERE {over}", (before,)).rowcount
    return Trimmed(forgotten, _shorten(db, before, event_bytes))


def _standing(db: sqlite3.Connection, delivery_id: Column, states: Sequence[str], what: str) -> dict[str, Column]:
    """Return where a delivery stands. Raises `DeliveryNotFound`, `DeliveryConflict` for one in none of the states."""
    query = "SELECT id, project, lane, key, state FROM deliveries WHERE delivery_id = ?"
    row = db.execute(query, (delivery_id,)).fetchone()
    if row is None:
        raise DeliveryNotFound(unplain(delivery_id))
    values = dict(zip(("id", "project", "lane", "key", "state"), row, strict=True))
    if values["state"] not in states:
        raise DeliveryConflict(unplain(delivery_id), values["state"], what)
    return values


@cache
def _offering(names: tuple[str, ...]) -> str:
    return f"INSERT INTO deliveries ({', '.join(names)}) VALUES ({', '.join(':' + name for name in names)}) {_ONCE}"


def _over(db: sqlite3.Connection, wanted: Mapping[str, Column]) -> Iterator[tuple[Any, ...]]:
    """Yield project, lane, trigger and state of the deliveries that are over, their number and when the newest came."""
    group: Sequence[Any] = ("", "", "", "")
    while group := db.execute(_NEXT_OVER, group).fetchone():
        if wanted.items() <= {"project": group[0], "lane": group[1]}.items():
            yield *group, *db.execute(_COUNT, group).fetchone(), *db.execute(_NEWEST, group).fetchone(), None


def _tally(names: Sequence[str], of_states: Sequence[Sequence[Any]]) -> Tally:
    counts = {state: count for state, count, _, _ in of_states}
    newest = max(newest for _, _, newest, _ in of_states)
    oldest = min((oldest for *_, oldest in of_states if oldest is not None), default=None)
    project, lane, trigger = names
    return Tally(project, lane, trigger, counts, moment(newest), None if oldest is None else moment(oldest))


def _all(names: Iterable[str]) -> str:
    return " AND ".join(f"{name} = :{name}" for name in names) or "TRUE"


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
