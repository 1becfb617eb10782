"""Find the rows of a table whose text has a part, by groups of three characters, with an index of SQLite's FTS5.

The index names candidates: the caller compares each with its row. A SQLite without FTS5 makes no index.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

MOST_GROUPS = 8
"""Groups of a part that are looked up: each more would be one more list to go through."""
NO_INDEX = (
    "this Python's SQLite has no FTS5 and cannot search. Use a Python with it, and then: amplifier store check --repair"
)
"""The text of an error without an index."""
_NUL = "\ue000"
"""Stands for NUL, at which FTS5 ends a text."""


def make_index(db: sqlite3.Connection, index: str, table: str, column: str) -> None:
    """Make the index of a column where there is none; `id` numbers the rows of the table."""
    with suppress(sqlite3.OperationalError):
        db.execute(f"""CREATE VIRTUAL TABLE IF NOT EXISTS {index} USING fts5({column}, content = '{table}',
            content_rowid = 'id', tokenize = 'trigram case_sensitive 1', detail = none, columnsize = 0)""")


def has_index(db: sqlite3.Connection, index: str) -> bool:
    """Return whether a file has an index."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (index,)).fetchone())


def clean(text: str) -> str:
    """Return a text as an index takes it: every part of the text is, cleaned, a part of this."""
    return text.replace("\0", _NUL).encode("utf-8", "replace").decode()


def find(db: sqlite3.Connection, index: str, part: str, limit: int) -> list[int] | None:
    """Return the ids of at most `limit` candidates; None for a part of less than three characters."""
    cleaned = clean(part)
    groups = [cleaned[at : at + 3] for at in range(len(cleaned) - 2)]
    if not groups:
        return None
    chosen = dict.fromkeys(groups[:: -(-len(groups) // MOST_GROUPS)])
    wanted = " AND ".join('"{}"'.format(each.replace('"', '""')) for each in chosen)
    return [row for (row,) in db.execute(f"SELECT rowid FROM {index} WHERE {index} MATCH ? LIMIT ?", (wanted, limit))]
