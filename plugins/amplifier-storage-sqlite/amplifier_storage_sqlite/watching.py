"""Tell listeners of commits: those of this process at once, those of others when a look finds them.

Looks are made in a thread with a connection of its own, which is there while somebody listens. Each is a read of
`PRAGMA data_version`, which changes with every commit of another connection.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreError

from .opening import connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.04
"""Seconds between two looks."""
PAUSE = 0.01
"""Seconds between two calls: commits within it are told of together."""


class Look:
    """Look whether another connection has committed since the last look."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._db: sqlite3.Connection | None = None
        self._seen: int | None = None
        self.has_news()

    def has_news(self) -> bool:
        """Return whether there was a commit; False for a file that cannot be read: its reader gets the error."""
        seen = self._seen
        with suppress(sqlite3.Error, StoreError, OSError):
            self._db = self._db or connect(self._path, self._busy_timeout)
            self._seen = self._db.execute("PRAGMA data_version").fetchone()[0]
        return self._seen != seen

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()


class Watch:
    """Call functions after commits, from the thread of this watch; usable from any thread."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._lock = threading.Lock()
        self._told: dict[object, Callable[[], None]] = {}
        self._news = threading.Event()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        """The running one, after those that end."""

    def add(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` after commits; return a function that ends this."""
        mark = object()
        with self._lock:
            if not self._told:
                self._news, self._ended = threading.Event(), threading.Event()
                given = Look(self._path, self._busy_timeout), self._news, self._ended
                name = f"watch of {self._path.name}"
                thread = threading.Thread(target=self._run, args=given, name=name, daemon=True)
                thread.start()
                self._threads = [*(each for each in self._threads if each.is_alive()), thread]
            self._told[mark] = told
        return lambda: self._forget(mark)

    def note(self) -> None:
        """Let listeners know of a commit of this process."""
        self._news.set()

    def close(self) -> None:
        """Forget all listeners and end the threads; idempotent."""
        with self._lock:
            self._told.clear()
            self._end()
            threads = self._threads
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _forget(self, mark: object) -> None:
        with self._lock:
            self._told.pop(mark, None)
            if not self._told:
                self._end()

    def _end(self) -> None:
        self._ended.set()
        self._news.set()

    def _run(self, look: Look, news: threading.Event, ended: threading.Event) -> None:
        while True:
            is_noted = news.wait(LOOK_EVERY)
            if ended.is_set():
                break
            news.clear()
            if look.has_news() or is_noted:
                self._tell()
                ended.wait(PAUSE)
        look.close()

    def _tell(self) -> None:
        with self._lock:
            all_told = list(self._told.values())
        for told in all_told:
            try:
                told()
            except Exception:
                logger.exception("a listener of the store failed")
