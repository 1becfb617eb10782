"""Write to a database by hand, with the durability of the store: the reference of what must be on the disk."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from .measure import called

if TYPE_CHECKING:
    from pathlib import Path

    from .measure import Sample

INSERTS = 20


def raw_database(folder: Path) -> sqlite3.Connection:
    """Open a database in a folder, beside the store: each commit waits for the disk."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    return db


def one_row(db: sqlite3.Connection, size: int) -> Sample:
    """Return a sample of a transaction with one row of so many bytes."""

    def insert() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows (body) VALUES (?)", ("x" * size,))
        db.execute("COMMIT")

    return called(insert, INSERTS)
