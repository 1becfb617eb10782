"""Empty the texts of a deleted session in the log and in finished deliveries; the rows stay, for lineage and dedupe."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.storage_records import DELETED, empty_texts

from .values import dumps, loads

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

_EVENTS = "SELECT sequence, data FROM events WHERE source_session_id = ?"
_FINISHED = "SELECT id, event FROM deliveries WHERE session_id = ? AND state IN ('done', 'refused', 'skipped')"


def forget_texts(db: sqlite3.Connection, session_id: str) -> None:
    """Empty the texts of the events of a session, and the data of its finished deliveries. Damaged JSON stays."""

    def change(rows: str, update: str, emptied: Callable[[Any], Any]) -> None:
        for key, column in db.execute(rows, (session_id,)).fetchall():
            with suppress(ValueError, AttributeError):
                db.execute(update, (dumps(emptied(loads(column))), key))

    change(_EVENTS, "UPDATE events SET data = ? WHERE sequence = ?", empty_texts)
    change(_FINISHED, "UPDATE deliveries SET event = ? WHERE id = ?", lambda event: {**event, "data": DELETED})
