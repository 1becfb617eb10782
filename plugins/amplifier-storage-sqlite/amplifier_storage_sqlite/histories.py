"""Keep histories: rows of messages, each with a checksum; the history of a fork begins with messages of another one.

Invariant: a row of `histories` names its source and the number of shared messages, and `messages` holds its own,
numbered from there on. A history outlives its session as long as another one shares its messages. Written messages
never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .faults import DamageError
from .values import checksum, loads, message_checksum

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from amplifier_core.transcript import Message

    from .values import Column

MISSING, CHANGED = "is missing", "is not what was written"

# a session goes on with the history, or messages cut from a session lie in it
_IS_USED = (
    "SELECT EXISTS (SELECT 1 FROM sessions WHERE history = :id) OR EXISTS (SELECT 1 FROM cuts WHERE history = :id)"
)

_OWN = (
    "SELECT position, CAST(body AS BLOB), digest FROM messages "
    "WHERE history = ? AND position >= ? AND position < ? ORDER BY position"
)


class Part(NamedTuple):
    """The messages of one history from `start` up to `stop`."""

    history: int
    start: int
    stop: int


class Entry(NamedTuple):
    """Hold one position of a history; `fault` names the fault of its message, "" for none."""

    position: int
    body: bytes
    fault: str = ""


def begin(db: sqlite3.Connection, source: int | None = None, shared: int = 0) -> int:
    """Add a history beginning with the first `shared` messages of `source`; return its id."""
    history = int(db.execute("SELECT coalesce(max(id), 0) + 1 FROM histories").fetchone()[0])
    row = (history, source, shared)
    db.execute("INSERT INTO histories (id, source, shared, digest) VALUES (?, ?, ?, ?)", (*row, checksum(*row)))
    return history


def extend(db: sqlite3.Connection, history: int, at: int, bodies: Sequence[Column]) -> None:
    """Add messages from position `at` on."""
    rows = [(history, n, body, message_checksum(history, n, body)) for n, body in enumerate(bodies, at)]
    db.executemany("INSERT INTO messages (history, position, body, digest) VALUES (?, ?, ?, ?)", rows)


def read(db: sqlite3.Connection, history: int, start: int, stop: int) -> list[Message]:
    """Return the messages from `start` up to `stop`. Raises `DamageError` for the first bad message."""
    messages: list[Message] = []
    for part in _parts(db, history, start, stop):
        expected = part.start
        for position, body, digest in db.execute(_OWN, part):
            if position != expected or digest != message_checksum(part.history, position, body):
                break
            messages.append(loads(body))
            expected += 1
        for position, body, fault in entries(db, history, expected, part.stop):  # none, unless one is not as expected
            if fault:
                raise DamageError(f"message m{position + 1} {fault}")
            messages.append(loads(body))
    return messages


def entries(db: sqlite3.Connection, history: int, start: int, stop: int) -> Iterator[Entry]:
    """Yield every position from `start` up to `stop`, including missing messages."""
    for part in _parts(db, history, start, stop):
        expected = part.start
        for position, body, digest in db.execute(_OWN, part):
            if not isinstance(position, int) or not expected <= position < part.stop:
                continue  # the row is not in the place its index names: the message counts as missing
            yield from (Entry(missing, b"", MISSING) for missing in range(expected, position))
            yield Entry(position, body, "" if digest == message_checksum(part.history, position, body) else CHANGED)
            expected = position + 1
        yield from (Entry(missing, b"", MISSING) for missing in range(expected, part.stop))


def find_owner(db: sqlite3.Connection, history: int, position: int) -> int:
    """Return the history in which the message at a position of a history lies."""
    return _parts(db, history, position, position + 1)[0].history


def release(db: sqlite3.Connection, history: int) -> None:
    """Delete the unused messages of a history, then those of its source."""
    is_indexed = db.execute("SELECT 1 FROM message_spans").fetchone()
    if is_indexed:
        from . import message_search
    following: int | None = history
    while following is not None and not db.execute(_IS_USED, {"id": following}).fetchone()[0]:
        link = _link(db, following)
        if link is None:
            return
        needed = db.execute("SELECT max(shared) FROM histories WHERE source = ?", (following,)).fetchone()[0]
        if is_indexed:
            message_search.forget(db, following, needed or 0)
        db.execute("DELETE FROM messages WHERE history = ? AND position >= ?", (following, needed or 0))
        if is_indexed:
            message_search.end_spans(db)
        source, shared = link
        if needed is None:
            db.execute("DELETE FROM histories WHERE id = ?", (following,))
        elif needed < shared:
            digest = checksum(following, source, needed)
            db.execute("UPDATE histories SET shared = ?, digest = ? WHERE id = ?", (needed, digest, following))
        following = source


def _parts(db: sqlite3.Connection, history: int, start: int, stop: int) -> list[Part]:
    """Return the parts of the range in order, without a look at other histories."""
    parts = []
    following: int | None = history
    while stop > start:
        source, shared = (following is not None and _link(db, following)) or (None, 0)
        parts.append(Part(following or 0, max(start, shared), stop))
        following, stop = source, min(stop, shared)
    return parts[::-1]


def _link(db: sqlite3.Connection, history: int) -> tuple[int | None, int] | None:
    """Return (source, shared) of a history, None if its row is damaged."""
    row: Any = db.execute("SELECT source, shared, digest FROM histories WHERE id = ?", (history,)).fetchone()
    return row[:2] if row and row[2] == checksum(history, *row[:2]) else None
