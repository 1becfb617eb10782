"""Share a reading connection between threads."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from amplifier_core.errors import StoreDamaged

from .faults import closed_error, is_index_damage, store_error
from .opening import connect, place_of, require_own, require_place

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from .writer import Writer

T = TypeVar("T")


class Reader:
    """Run queries one at a time, connecting at the first. Reads committed data and never waits for a writer."""

    def __init__(self, path: Path, busy_timeout: float, writer: Writer | None = None) -> None:
        self._path = path
        self._writer = writer
        self._busy_timeout = busy_timeout
        self._lock = threading.Lock()
        self._closed = False
        self._is_repaired = False
        self._place = place_of(path)
        self._process = os.getpid()
        self._db: sqlite3.Connection | None = None

    def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `query`; all its statements see one state. Raises `StoreUnavailable`, `StoreDamaged`."""
        try:
            return self._run(query)
        except StoreDamaged as error:
            if self._is_repaired or not is_index_damage(error.__cause__):
                raise
            self._is_repaired = True  # one bad index blocks nothing; a second damage is another one
            with closing(connect(self._path, self._busy_timeout)) as db:
                from .checking import rebuild_indexes

                rebuild_indexes(db)
            return self._run(query)

    def run_short(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Do as `run` does for a query of some rows that returns no None, on the connection of an idle writer."""
        if self._writer is not None and not self._closed and (found := self._writer.read_idle(query)) is not None:
            return found
        return self.run(query)

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        require_own(self._process, self._path)
        with self._lock:
            try:
                if self._closed:
                    raise closed_error(self._path)
                require_place(self._path, self._place)
                db = self._connection()
                db.execute("BEGIN")
                try:
                    return query(db)
                finally:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
            except Exception as error:  # as `translate_errors` does, at less cost
                raised = store_error(self._path, error)
                if raised is error:
                    raise
                raise raised from error

    def close(self) -> None:
        """Close the connection after the running query; idempotent."""
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


def in_event_loop() -> bool:
    """Return whether a long read would block an event loop; without asyncio imported there is none."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
