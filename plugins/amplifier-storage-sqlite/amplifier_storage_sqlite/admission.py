"""How a delivery waits in its lane: behind which others, in place of which, or not at all.

Of the deliveries of one key that are not over, all but the oldest wait. Whatever adds one or ends one keeps that so: a
claim looks for what does not wait, however many do.
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
NOT_OVER = "an earlier one of its key is not over"

WAITS, WAITS_AND_IS_HELD = 1, 2
"""Values of the column `waits`, 0 for what does not: the second is claimed while an earlier one was delivered again."""

_OF_KEY = f"project = :project AND lane = :lane AND key = :key AND {OPEN}"
_SKIP = """UPDATE deliveries SET state = 'skipped', waits = 0, settle_key = NULL, lease_until = 0,
    reason = :reason, updated = :now WHERE """
_SETTLING = """SELECT id, key, settling_since FROM deliveries
    WHERE project = :project AND lane = :lane AND settle_key = :settle_key
        AND state = 'pending' AND available_at > :created"""


def admitted(db: sqlite3.Connection, row: Mapping[str, Column], admission: Admission) -> dict[str, Column]:
    """Return the columns that change for a new delivery as it joins its lane, once others have made room for it."""
    values = {**row, "settle_key": plain(admission.settle_key, "settle_key")}
    settled = db.execute(_SETTLING, values).fetchall() if admission.settle_key is not None else []
    if admission.overlap == "skip" and _is_another_open(db, values, settled):
        return {"state": "skipped", "reason": NOT_OVER}
    for delivery, key, _ in settled:
        skip(db, {**values, "id": delivery, "key": key}, _because("settled into", row))
    if admission.overlap == "replace" and admission.key is not None:
        db.execute(_SKIP + _OF_KEY, {**values, "now": row["created"], "reason": _because("replaced by", row)})
    times = {} if admission.settle_key is None else _settling(values, admission, [since for *_, since in settled])
    return {"settle_key": values["settle_key"], **times, "waits": WAITS if _is_another_open(db, values) else 0}


def skip(db: sqlite3.Connection, values: Mapping[str, Column], reason: Column) -> None:
    """End the delivery of this `id` undelivered, at the time `created`."""
    db.execute(f"{_SKIP} id = :id", {**values, "reason": reason, "now": values["created"]})
    let_next(db, values)


def let_next(db: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Let the oldest delivery of the lane that has this `key`, and is not over, be claimed."""
    if values["key"] is not None:
        oldest = f"(SELECT min(id) FROM deliveries WHERE {_OF_KEY})"
        db.execute(f"UPDATE deliveries SET waits = 0 WHERE id = {oldest} AND waits > 0", values)


def line_up(db: sqlite3.Connection, values: Mapping[str, Any]) -> bool:
    """Make the later deliveries of this `key` wait for the one of this `id`; return whether an earlier one is open."""
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


def _settling(values: Mapping[str, Any], admission: Admission, since: Sequence[int]) -> dict[str, Column]:
    first = min(since, default=values["created"])
    due = values["created"] + _micros(admission.settle)
    if admission.settle_within is not None:
        due = min(due, first + _micros(admission.settle_within))
    return {"settling_since": first, "available_at": due}


def _because(what: str, row: Mapping[str, Column]) -> Column:
    return plain(f"{what} event {unplain(row['event_id'])}")


def _micros(seconds: float) -> int:
    return timedelta(seconds=seconds) // timedelta(microseconds=1)
