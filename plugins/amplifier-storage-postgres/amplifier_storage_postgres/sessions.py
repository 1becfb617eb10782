"""Read, examine and repair sessions.

A row holds the record, the id of the session's history, and a checksum of both, which the database keeps and compares.
The history of a fork begins with messages of another one. Written messages never change.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import SessionNotFound
from amplifier_core.storage import Finding, SessionRecord
from amplifier_core.storage_records import DELETED, empty_texts

from .faults import DamageError
from .rows import SESSIONS
from .values import checksum, dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from amplifier_core.transcript import Message

    from .connections import Pool
    from .projects import Projects

MISSING, CHANGED = "is missing", "is not what was written"

LISTED = f"SELECT {SESSIONS.columns}, digest IS NOT DISTINCT FROM @.digest_of(s) FROM @.sessions s"
_RELATIONS = """SELECT parent_id, fork_of, EXISTS (SELECT 1 FROM @.sessions o WHERE o.session_id = s.parent_id),
    EXISTS (SELECT 1 FROM @.sessions o WHERE o.session_id = s.fork_of) FROM @.sessions s WHERE session_id = %s"""
_ITS_EVENTS = """SELECT sequence, data FROM @.events
    WHERE left(source_session_id, 200) = left(%(id)s, 200) AND source_session_id = %(id)s"""
_ITS_DELIVERIES = """SELECT id, event FROM @.deliveries
    WHERE session_id = %(id)s AND state IN ('done', 'refused', 'skipped')"""

EXPIRED = """
WITH woken AS (
    SELECT session_id, status, updated, id,
        row_number() OVER (PARTITION BY parent_id, name ORDER BY updated DESC, id DESC) AS place
    FROM @.sessions WHERE event_id IS NOT NULL
)
SELECT session_id FROM woken
WHERE place > %s AND updated < %s AND status <> 'running' AND NOT EXISTS (
    SELECT 1 FROM @.deliveries d
    WHERE d.session_id = woken.session_id AND d.state IN ('pending', 'claimed', 'dead')
)
ORDER BY updated, id LIMIT %s
"""


class Entry(NamedTuple):
    """Hold one position of a history; `fault` names the fault of its message, "" for none."""

    position: int
    body: str
    fault: str = ""


def get(pool: Pool, projects: Projects, session_id: str) -> SessionRecord:
    """Return one record. Raises `SessionNotFound`, `DamageError`."""
    rows = pool.read(f"{LISTED} WHERE session_id = %s", (session_id,))
    if not rows:
        raise SessionNotFound(session_id)
    *columns, is_sound = rows[0]
    if not is_sound:
        raise DamageError(damaged_record(session_id))
    return SESSIONS.item(columns, projects)


def damaged_record(session_id: object) -> str:
    """Return what is wrong with a damaged record."""
    return f"the record of session {session_id!r} is not what was written; deleting it leaves the others"


def listed(
    pool: Pool, projects: Projects, query: str, values: Sequence[Any] | Mapping[str, Any]
) -> list[SessionRecord]:
    """Return the records of a query; a damaged one gets its error: a list neither fails nor hides it."""
    return [
        SESSIONS.item(columns, projects) if is_sound else _damaged(columns[0])
        for *columns, is_sound in pool.read(query, values)
    ]


def _damaged(session_id: str) -> SessionRecord:
    return SessionRecord(session_id, status="interrupted", error=f"the store is damaged: {damaged_record(session_id)}")


def read(pool: Pool, session_id: str, start: int, stop: int | None) -> list[Message]:
    """Return the messages from `start` up to `stop`. Raises `SessionNotFound`, `DamageError`."""
    messages = []
    for position, body, fault in _entries(pool, session_id, start, stop)[1]:
        if fault:
            raise DamageError(f"message m{position + 1} {fault}; see: amplifier session repair {session_id}")
        messages.append(loads(body))
    return messages


def emptied(pool: Pool, session_id: str) -> dict[str, Any]:
    """Return the events and finished deliveries of a session as its deletion leaves them, and the last event's number.

    Each is its number and the new JSON, None for damaged JSON.
    """

    def change(rows: str, empty: Callable[[Any], Any]) -> Iterator[tuple[int, str | None]]:
        for number, column in pool.read(rows, {"id": session_id}):
            new = None
            with suppress(ValueError, AttributeError):
                new = dumps(empty(loads(column)))
            yield number, new

    events = list(change(_ITS_EVENTS, empty_texts))
    return {
        "events": events,
        "last_event": max((sequence for sequence, _ in events), default=0),
        "deliveries": list(change(_ITS_DELIVERIES, lambda event: {**event, "data": DELETED})),
    }


def examine(pool: Pool, session_id: str) -> list[Finding]:
    """Return the faults of a session."""
    return [*_lost_relations(pool, session_id), *_bad_messages(_entries(pool, session_id, 0, None)[1])]


def plan_repair(pool: Pool, session_id: str) -> tuple[list[Finding], Mapping[str, Any]]:
    """Return the faults of a session, and the repair for the database."""
    (history, count), entries = _entries(pool, session_id, 0, None)
    findings = [*_lost_relations(pool, session_id), *_bad_messages(entries)]
    kinds = {finding.kind for finding in findings}
    bad = [finding.position for finding in findings if finding.position is not None]
    return findings, {
        "session_id": session_id,
        "history": history,
        "count": count,
        "cut_at": min(bad, default=None),
        "no_parent": "missing_parent" in kinds,
        "no_source": "missing_source" in kinds,
    }


def _entries(pool: Pool, session_id: str, start: int, stop: int | None) -> tuple[tuple[int, int], list[Entry]]:
    """Return (history, count) of a session, and every position from `start` up to `stop`, with missing messages."""
    (history, end, count), *rows = pool.read("SELECT * FROM @.read_messages(%s, %s, %s)", (session_id, start, stop))
    found, expected = list[Entry](), max(0, start)
    for position, body, digest in rows:
        found += (Entry(missing, "", MISSING) for missing in range(expected, position))
        found.append(Entry(position, body, "" if digest == checksum(position, body) else CHANGED))
        expected = position + 1
    found += (Entry(missing, "", MISSING) for missing in range(expected, int(end)))
    return (history, count), found


def _lost_relations(pool: Pool, session_id: str) -> Iterator[Finding]:
    for parent, source, has_parent, has_source in pool.read(_RELATIONS, (session_id,)):
        if parent is not None and not has_parent:
            yield Finding("missing_parent", f"its parent '{parent}' is gone", "let it stand without a parent")
        if source is not None and not has_source:
            yield Finding(
                "missing_source",
                f"it was forked from '{source}', which is gone",
                "let it stand by itself; it keeps the messages that it shared",
            )


def _bad_messages(entries: Sequence[Entry]) -> Iterator[Finding]:
    remedy = None
    for position, _, fault in entries:
        if fault:
            name = f"message m{position + 1}"
            remedy = remedy or f"end the history before {name}; what follows is kept beside, table 'cuts'"
            yield Finding("bad_message", f"{name} {fault}", remedy, position)
