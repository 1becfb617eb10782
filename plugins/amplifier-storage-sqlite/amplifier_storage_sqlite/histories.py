"""Histories: messages in rows, each under a checksum; a fork's begins with the first messages of another one.

A history outlives its session for as long as another one shares its messages. Its row says whose first `shared`
messages it begins with; `messages` holds its own, numbered from there on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .faults import Damage
from .values import checksum, loads

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from amplifier_core.transcript import Message

    from .values import Column

MISSING, CHANGED = "is missing", "is not what was written"


class Part(NamedTuple):
    """The messages of one history from `start` up to `stop`."""

    history: int
    start: int
    stop: int


class Entry(NamedTuple):
    """One position of a history; `fault` says what is wrong with the message there, when something is."""

    position: int
    body: bytes
    fault: str = ""


def begin(db: sqlite3.Connection, source: int | None = None, shared: int = 0) -> int:
    """Add a history that begins with the first `shared` messages of `source`; return its id."""
    history = int(db.execute("SELECT coalesce(max(id), 0) + 1 FROM histories").fetchone()[0])
    row = (history, source, shared)
    db.execute("INSERT INTO histories (id, source, shared, digest) VALUES (?, ?, ?, ?)", (*row, checksum(*row)))
    return history


def extend(db: sqlite3.Connection, history: int, at: int, bodies: Sequence[Column]) -> None:
    """Add messages from position `at` on."""
    rows = [(history, n, body, checksum(history, n, body)) for n, body in enumerate(bodies, at)]
    db.executemany("INSERT INTO messages (history, position, body, digest) VALUES (?, ?, ?, ?)", rows)


def read(db: sqlite3.Connection, history: int, start: int, stop: int) -> list[Message]:
    """Return the messages from `start` up to `stop`. Raises `Damage` for the first that is not what was written."""
    messages = []
    for position, body, fault in entries(db, history, start, stop):
        if fault:
            raise Damage(f"message m{position + 1} {fault}")
        messages.append(loads(body))
    return messages


def entries(db: sqlite3.Connection, history: int, start: int, stop: int) -> Iterator[Entry]:
    """Yield every position from `start` up to `stop`, also those whose message is missing."""
    query = (
        "SELECT position, CAST(body AS BLOB), digest FROM messages "
        "WHERE history = ? AND position >= ? AND position < ? ORDER BY position"
    )
    for part in _parts(db, history, start, stop):
        expected = part.start
        for position, body, digest in db.execute(query, part):
            if not isinstance(position, int) or not expected <= position < part.stop:
                continue  # its row is not where the index says: what should be there is missing
            yield from (Entry(missing, b"", MISSING) for missing in range(expected, position))
            yield Entry(position, body, "" if digest == checksum(part.history, position, body) else CHANGED)
            expected = position + 1
        yield from (Entry(missing, b"", MISSING) for missing in range(expected, part.stop))


def release(db: sqlite3.Connection, history: int) -> None:
    """Free what of a history nobody needs any more, and then of the one that it shares messages of."""
    following: int | None = history
    while following is not None and not _is_kept(db, following):
        link = _link(db, following)
        if link is None:
            return
        needed = db.execute("SELECT max(shared) FROM histories WHERE source = ?", (following,)).fetchone()[0]
        db.execute("DELETE FROM messages WHERE history = ? AND position >= ?", (following, needed or 0))
        source, shared = link
        if needed is None:
            db.execute("DELETE FROM histories WHERE id = ?", (following,))
        elif needed < shared:
            digest = checksum(following, source, needed)
            db.execute("UPDATE histories SET shared = ?, digest = ? WHERE id = ?", (needed, digest, following))
        following = source


def _parts(db: sqlite3.Connection, history: int, start: int, stop: int) -> list[Part]:
    """Return where the messages lie, in their order: no history is looked at that holds none of them."""
    parts = []
    following: int | None = history
    while stop > start:
        source, shared = (following is not None and _link(db, following)) or (None, 0)
        parts.append(Part(following or 0, max(start, shared), stop))
        following, stop = source, min(stop, shared)
    return parts[::-1]


def _link(db: sqlite3.Connection, history: int) -> tuple[int | None, int] | None:
    """Return whose first messages a history shares, and how many; None when its row is not what was written."""
    row: Any = db.execute("SELECT source, shared, digest FROM histories WHERE id = ?", (history,)).fetchone()
    return row[:2] if row and row[2] == checksum(history, *row[:2]) else None


def _is_kept(db: sqlite3.Connection, history: int) -> bool:
    """Return whether a session goes on with it, or what was cut from a session lies in it."""
    query = (
        "SELECT EXISTS (SELECT 1 FROM sessions WHERE history = :id) OR EXISTS (SELECT 1 FROM cuts WHERE history = :id)"
    )
    return bool(db.execute(query, {"id": history}).fetchone()[0])
