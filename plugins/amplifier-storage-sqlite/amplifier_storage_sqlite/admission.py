"""Line up deliveries in their queue: behind others, in place of others, or not at all.

Invariant: of the unfinished deliveries with one key, all but the oldest have `waits` set. Every function below that
adds or ends a delivery keeps it, so a claim looks only at rows with `waits = 0`, however many wait.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .values import Column, plain, unplain

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from amplifier_core.storage import Admission

OPEN = "state IN ('pending', 'claimed')"
UNFINISHED = "an earlier delivery with the same key is unfinished"

WAITS, WAITS_AND_IS_HELD = 1, 2
"""Values of the column `waits` beside 0: the second marks a claimed delivery behind a redelivered earlier one."""

_OF_KEY = f"project = :project AND queue = :queue AND key = :key AND {OPEN}"
_SKIP = """UPDATE deliveries SET state = 'skipped', waits = 0, settle_key = NULL, lease_until = 0,
    reason = :reason, updated = :now WHERE """
_SETTLING = """SELECT id, key, settling_since FROM deliveries
    WHERE project = :project AND queue = :queue AND settle_key = :settle_key
        AND state = 'pending' AND available_at > :created"""


def admit(db: sqlite3.Connection, row: Mapping[str, Column], admission: Admission) -> dict[str, Column]:
    """Make room for a new delivery in its queue, and return its changed columns."""
    values = {**row, "settle_key": plain(admission.settle_key, "settle_key")}
    created = int(row["created"] or 0)
    settled = db.execute(_SETTLING, values).fetchall() if admission.settle_key is not None else []
    if admission.overlap == "skip" and _is_another_open(db, values, settled):
        return {"state": "skipped", "reason": UNFINISHED}
    for delivery, key, _ in settled:
        skip(db, {**values, "id": delivery, "key": key}, _because("settled into", row))
    if admission.overlap == "replace" and admission.key is not None:
        db.execute(_SKIP + _OF_KEY, {**values, "now": row["created"], "reason": _because("replaced by", row)})
    changes: dict[str, Column] = {"settle_key": values["settle_key"]}
    if admission.settle_key is not None:
        first = min((since for *_, since in settled), default=created)
        due = created + _micros(admission.settle)
        if admission.settle_within is not None:
            due = min(due, first + _micros(admission.settle_within))
        changes |= {"settling_since": first, "available_at": due}
    return {**changes, "waits": WAITS if _is_another_open(db, values) else 0}


def skip(db: sqlite3.Connection, values: Mapping[str, Column], reason: Column) -> None:
    """End the delivery of this `id` undelivered, at the time `created`."""
    db.execute(f"{_SKIP} id = :id", {**values, "reason": reason, "now": values["created"]})
    let_next(db, values)


def let_next(db: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Let a worker claim the oldest unfinished delivery of the queue with this `key`."""
    if values["key"] is not None:
        oldest = f"(SELECT min(id) FROM deliveries WHERE {_OF_KEY})"
        db.execute(f"UPDATE deliveries SET waits = 0 WHERE id = {oldest} AND waits > 0", values)


def line_up(db: sqlite3.Connection, values: Mapping[str, Any]) -> bool:
    """Make the later deliveries with this `key` wait for this `id`; return whether an earlier one is unfinished."""
    if values["key"] is None:
        return False
    held = f"CASE state WHEN 'claimed' THEN {WAITS_AND_IS_HELD} ELSE {WAITS} END"
    db.execute(f"UPDATE deliveries SET waits = {held} WHERE {_OF_KEY} AND id > :id AND waits = 0", values)
    return bool(db.execute(f"SELECT 1 FROM deliveries WHERE {_OF_KEY} AND id < :id LIMIT 1", values).fetchone())


def _is_another_open(
    db: sqlite3.Connection, values: Mapping[str, Column], besides: Sequence[tuple[int, Column, int]] = ()
) -> bool:
    if values["key"] is None:
        return False
    limit = {"limit": len(besides) + 1}
    found = db.execute(f"SELECT id FROM deliveries WHERE {_OF_KEY} LIMIT :limit", {**values, **limit}).fetchall()
    return not {delivery for (delivery,) in found} <= {delivery for delivery, *_ in besides}


def _because(what: str, row: Mapping[str, Column]) -> Column:
    return plain(f"{what} event {unplain(row['event_id'])}")


def _micros(seconds: float) -> int:
    return timedelta(seconds=seconds) // timedelta(microseconds=1)
