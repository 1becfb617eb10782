"""Index the names, ids and bundles of sessions when somebody looks for a part of one, and find the sessions.

A row of `session_texts` has the text of a session under the id of its row, and `session_index` has the trigrams of the
texts. Whoever stores a session does nothing for this: a session above the last text is one to index. Triggers of the
database, which every process heeds, mark the text of a session that gets another one, and delete the text of a deleted
session.

Invariant: up to the last text, each session has a text, which is its own unless it is marked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.text_search import fold_text

from . import trigrams
from .values import unplain

if TYPE_CHECKING:
    import sqlite3

    from .values import Column

MOST_FOUND = 2000
"""Candidates that are compared with a text; where there are more, a walk through the newest sessions finds enough."""
MOST_LATE = 64
"""Sessions to index that are compared one by one instead."""
STEP = 200
"""Sessions that one transaction indexes: others wait for it no longer than for another writer."""

_INDEX = "session_index"
_LATE = """SELECT id FROM sessions WHERE id > (SELECT coalesce(max(id), 0) FROM session_texts)
    UNION ALL SELECT id FROM session_texts WHERE marked LIMIT ?"""
_TEXTS = """SELECT id, name, session_id, bundle, (SELECT text FROM session_texts WHERE session_texts.id = sessions.id)
    FROM sessions WHERE id IN ({})"""


def fold(name: Column, session_id: str, bundle: Column) -> str:
    """Return the text of a session that a part is looked for in."""
    return fold_text(f"{unplain(name)}\n{session_id}\n{unplain(bundle)}")


def is_behind(db: sqlite3.Connection) -> bool:
    """Return whether there are sessions to index, more than `MOST_LATE`."""
    return trigrams.has_index(db, _INDEX) and len(db.execute(_LATE, (MOST_LATE + 1,)).fetchall()) > MOST_LATE


def index_texts(db: sqlite3.Connection) -> int:
    """Index some sessions, the oldest first; return their number, 0 at the end."""
    late = [each for (each,) in db.execute(_LATE, (STEP,))]
    rows = db.execute(_TEXTS.format(", ".join(map(str, late)))).fetchall()
    texts = [(row[0], trigrams.clean(fold(*row[1:4]))) for row in rows]
    old = [(row[0], row[4]) for row in rows if row[4] is not None]
    db.executemany(f"INSERT INTO {_INDEX} ({_INDEX}, rowid, text) VALUES ('delete', ?, ?)", old)
    db.executemany("INSERT OR REPLACE INTO session_texts (id, text) VALUES (?, ?)", texts)
    db.executemany(f"INSERT INTO {_INDEX} (rowid, text) VALUES (?, ?)", texts)
    return len(rows)


def find_candidates(db: sqlite3.Connection, part: str) -> list[int] | None:
    """Return the rows among which are all sessions with a folded part; None if they are many, or not indexed."""
    if not trigrams.has_index(db, _INDEX):
        return None
    late = [each for (each,) in db.execute(_LATE, (MOST_LATE + 1,))]
    found = trigrams.find(db, _INDEX, part, MOST_FOUND + 1) if len(late) <= MOST_LATE else None
    return None if found is None or len(found) > MOST_FOUND else [*found, *late]


def forget(db: sqlite3.Connection, session_id: str) -> None:
    """Take the text of a session, which is deleted next, from the index."""
    query = "SELECT session_texts.id, text FROM sessions JOIN session_texts USING (id) WHERE session_id = ?"
    if row := db.execute(query, (session_id,)).fetchone():
        db.execute(f"INSERT INTO {_INDEX} ({_INDEX}, rowid, text) VALUES ('delete', ?, ?)", row)


def clear_texts(db: sqlite3.Connection) -> None:
    """Empty the index: later searches make it anew."""
    make_session_index(db)
    if trigrams.has_index(db, _INDEX):
        db.execute(f"INSERT INTO {_INDEX} ({_INDEX}) VALUES ('delete-all')")
    db.execute("DELETE FROM session_texts")


def make_session_index(db: sqlite3.Connection) -> None:
    """Make the index of `session_texts` where there is none."""
    trigrams.make_index(db, _INDEX, "session_texts", "text")


SESSION_TEXTS = (
    """CREATE TABLE session_texts (
        id INTEGER PRIMARY KEY,
        text TEXT NOT NULL,
        marked INTEGER NOT NULL DEFAULT 0
    )""",
    "CREATE INDEX session_texts_marked ON session_texts (id) WHERE marked",
    """CREATE TRIGGER session_texts_changed AFTER UPDATE OF session_id, name, bundle ON sessions BEGIN
        UPDATE session_texts SET marked = 1 WHERE id = NEW.id;
    END""",
    """CREATE TRIGGER session_texts_deleted AFTER DELETE ON sessions BEGIN
        DELETE FROM session_texts WHERE id = OLD.id;
    END""",
    make_session_index,
)
"""The first steps from schema 17 to 18. Released ones are never changed."""
