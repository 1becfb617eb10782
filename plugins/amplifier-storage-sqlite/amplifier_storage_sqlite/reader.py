"""A connection that reads, shared by threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from .faults import closed, translated
from .opening import connect

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")


class Reader:
    """Runs queries one at a time; connects at the first. It sees what is committed, and never waits for a writer."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._lock = threading.Lock()
        self._closed = False
        self._db: sqlite3.Connection | None = None

    def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `query` returns, whose statements see one state. Raises `StoreUnavailable`, `StoreDamaged`."""
        with self._lock, translated(self._path):
            if self._closed:
                raise closed(self._path)
            db = self._connection()
            db.execute("BEGIN")
            try:
                return query(db)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection when the query that runs has ended; idempotent."""
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = connect(self._path, self._busy_timeout)
            self._db.execute("PRAGMA query_only = ON")
        return self._db
