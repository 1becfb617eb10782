"""Keep the order of sessions by their last change, without a move in two indexes at each change.

The indexes have the time under which a session is listed, `listed`; a new session is in none. It has a number in
`recent`, and so has a session from its first change after that time on. A list merges the sessions with a number, which
are few, by their real time. Before there are more than `MOST_RECENT`, all of them move in the indexes to the times of
their last changes.

Invariant: a session without a number is listed under the time of its last change.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

MOST_RECENT = 64
"""Sessions with a number: each list reads them all, and a move of so many shares its pages."""

_SHOWN = "id, status, name, session_id, bundle"  # filters of a page read the index alone
_SETTLE = "UPDATE sessions SET recent = NULL, listed = updated"
_NEWEST = """
WITH changed (number) AS (SELECT id FROM sessions WHERE recent IS NOT NULL)
SELECT {columns}listed AS at, id FROM sessions WHERE {settled} AND listed IS NOT NULL AND id NOT IN changed
UNION ALL
SELECT {columns}updated, id FROM changed CROSS JOIN sessions ON id = number WHERE {changed}
"""
_ORDER = "ORDER BY at DESC, id DESC LIMIT :limit"


def newest(columns: str, where: str, candidates: Sequence[int] | None = None) -> str:
    """Return the query for `columns`, the time and the row's id of sessions, the last changed first.

    `where` may name the time as `{at}`. `candidates` are the ids of the only rows to look at.
    """
    if candidates is not None:
        among = f"id IN ({', '.join(map(str, candidates))}) AND {where.format(at='updated')}"
        return f"SELECT {columns and f'{columns}, '}updated AS at, id FROM sessions WHERE {among} {_ORDER}"
    conditions = {"settled": where.format(at="listed"), "changed": where.format(at="updated")}
    return _NEWEST.format(columns=columns and f"{columns}, ", **conditions) + _ORDER


def next_number(db: sqlite3.Connection) -> int:
    """Return the number of one more new or changed session, in the writer's transaction."""
    last: int | None = getattr(db, "last_number", None)
    if last is None:
        [(last,)] = db.execute("SELECT coalesce(max(recent), 0) FROM sessions WHERE recent IS NOT NULL")
    if last >= MOST_RECENT:
        db.execute(f"{_SETTLE} WHERE recent IS NOT NULL")
        getattr(db, "known_sessions", {}).clear()  # their next changes need numbers
        last = 0
    with suppress(AttributeError):  # a connection that is not a store's writer remembers nothing
        db.last_number = last + 1  # type: ignore[attr-defined]
    return last + 1


def has_wrong_order(db: sqlite3.Connection) -> bool:
    """Return whether a session is listed under a wrong time."""
    query = "SELECT EXISTS (SELECT 1 FROM sessions NOT INDEXED WHERE recent IS NULL AND listed IS NOT updated)"
    return bool(db.execute(query).fetchone()[0])


def restore_order(db: sqlite3.Connection) -> None:
    """List every session under the time of its last change."""
    db.execute(f"{_SETTLE} WHERE recent IS NOT NULL OR listed IS NOT updated")


ORDERING = (
    "ALTER TABLE sessions ADD COLUMN recent INTEGER",
    "ALTER TABLE sessions ADD COLUMN listed INTEGER",
    "DROP INDEX sessions_by_time",
    "DROP INDEX sessions_by_project",
    "DROP INDEX sessions_spawned",
    restore_order,
    f"CREATE INDEX sessions_by_time ON sessions (listed, {_SHOWN}) WHERE listed IS NOT NULL",
    f"CREATE INDEX sessions_by_project ON sessions (project, listed, {_SHOWN}) WHERE listed IS NOT NULL",
    "CREATE INDEX sessions_recent ON sessions (recent) WHERE recent IS NOT NULL",
    """CREATE INDEX sessions_spawned ON sessions (parent_id)
        WHERE parent_id IS NOT NULL AND fork_of IS NULL AND event_id IS NULL""",
)
"""The steps from schema 16 to 17. Released ones are never changed."""
