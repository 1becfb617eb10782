"""Examine and repair a session on a connection, as in `sessions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.storage import Finding

from . import histories, sessions
from .values import micros

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from .values import Column


def examine(db: sqlite3.Connection, session_id: str) -> list[Finding]:
    """Return the faults of a session's lineage, then those of its messages."""
    row = sessions.load_row(db, session_id)
    return [*_lost_relations(db, row), *_bad_messages(db, row)]


def repair(db: sqlite3.Connection, session_id: str, now: datetime) -> list[Finding]:
    """Make a sound session of the readable rest, and return the findings."""
    row = sessions.load_row(db, session_id)
    findings = examine(db, session_id)
    kinds = {finding.kind for finding in findings}
    changes: dict[str, Column] = {}
    if "missing_parent" in kinds:
        changes["parent_id"] = None
    if "missing_source" in kinds:
        changes |= {"fork_of": None, "fork_at": None}
    if "bad_message" in kinds:
        first = min(finding.position for finding in findings if finding.position is not None)
        changes = {**_cut(db, row, first, now), **changes}
    if changes:
        sessions.change(db, row, {**changes, "updated": micros(now)})
    return findings


def _lost_relations(db: sqlite3.Connection, row: Mapping[str, Any]) -> Iterator[Finding]:
    known = "SELECT 1 FROM sessions WHERE session_id = ?"
    if row["parent_id"] is not None and not db.execute(known, (row["parent_id"],)).fetchone():
        yield Finding("missing_parent", f"its parent '{row['parent_id']}' is gone", "let it stand without a parent")
    if row["fork_of"] is not None and not db.execute(known, (row["fork_of"],)).fetchone():
        yield Finding(
            "missing_source",
            f"it was forked from '{row['fork_of']}', which is gone",
            "let it stand by itself; it keeps the messages that it shared",
        )


def _bad_messages(db: sqlite3.Connection, row: Mapping[str, Any]) -> Iterator[Finding]:
    remedy = None
    for position, _, fault in histories.entries(db, row["history"], 0, row["message_count"]):
        if fault:
            name = f"message m{position + 1}"
            remedy = remedy or f"end the history before {name}; what follows is kept beside, table 'cuts'"
            yield Finding("bad_message", f"{name} {fault}", remedy, position)


def _cut(db: sqlite3.Connection, row: Mapping[str, Any], at: int, now: datetime) -> dict[str, Column]:
    """Give the session a history sharing the first `at` messages; leave the other messages untouched."""
    kept = (row["session_id"], row["history"], at, row["message_count"], micros(now))
    db.execute("INSERT INTO cuts (session_id, history, start, stop, cut) VALUES (?, ?, ?, ?, ?)", kept)
    fork_at = row["fork_at"]
    return {
        "history": histories.begin(db, row["history"], at),
        "message_count": at,
        "fork_at": fork_at if fork_at is None else min(fork_at, at),
    }
