"""Tell other processes that something was stored, and hear of it.

A hint is a NOTIFY after the transaction, one for all writes of `PAUSE` seconds: inside the transaction it would make
all writers wait for each other. Hints may be lost or late.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg

from amplifier_core.errors import StoreError
from amplifier_core.process_forks import close_in_forks

from .connections import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .connections import Pool, TimedConnection

logger = logging.getLogger(__name__)

PAUSE = 0.02
"""Seconds between two hints."""
LOOK_EVERY = 10.0
"""Seconds between two looks whether the listening connection is alive."""
_LONGEST_PAUSE = 5.0

_QUIET = " quiet"
"""At the end of a hint for those who watch commits."""
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


class Hints:
    """Send hints from one thread, and hear those of others in another; both start with their first use."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._channel = f"amplifier_{pool.settings.schema}"
        self._token = uuid4().hex
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._ended = threading.Event()
        self._sender: threading.Thread | None = None
        self._listener: Listener | None = None
        self._listeners: dict[object, Callable[[], None]] = {}
        self._watchers: dict[object, Callable[[], None]] = {}
        self._is_loud = False

    def tell(self, *, quiet: bool = False) -> None:
        """Let others know soon that something was stored: with `quiet`, those alone who watch commits."""
        self._leave_parent()
        if self._sender is None:
            with self._lock:
                if self._sender is None:
                    self._sender = threading.Thread(target=self._send, name="hints of the store", daemon=True)
                    self._sender.start()
        self._is_loud = self._is_loud or not quiet
        self._news.set()

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` after each hint of another store; return a function that ends this."""
        self._leave_parent()
        return self._add(self._listeners, told)

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` after each hint of any store, and of this one; return a function that ends this."""
        self._leave_parent()
        return self._add(self._watchers, told)

    def _add(self, all_told: dict[object, Callable[[], None]], told: Callable[[], None]) -> Callable[[], None]:
        mark = object()
        with self._lock:
            all_told[mark] = told
            if self._listener is None:
                self._listener = Listener(self._pool, self._channel, self._hear)
        return lambda: self._forget(mark)

    def close(self) -> None:
        """End both threads; hints that are left go out first."""
        self._ended.set()
        self._news.set()
        if self._sender is not None and self._process == os.getpid():
            self._sender.join()
        with self._lock:
            self._listeners.clear()
            self._watchers.clear()
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _leave_parent(self) -> None:
        """Begin anew in a fork: the threads are the parent's."""
        if self._process != os.getpid():
            self._begin()

    def _forget(self, mark: object) -> None:
        with self._lock:
            self._listeners.pop(mark, None)
            self._watchers.pop(mark, None)
            listener = None if self._listeners or self._watchers else self._listener
            if listener is not None:
                self._listener = None
        if listener is not None:
            listener.close()

    def _send(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            is_last = self._ended.is_set()
            mark, self._is_loud = "" if self._is_loud else _QUIET, False
            self._call(self._watchers)
            with suppress(Exception):  # a hint may be lost
                self._pool.read(_NOTIFY, (self._channel, self._token + mark))
            if is_last:
                return
            self._ended.wait(PAUSE)

    def _hear(self, hint: str) -> None:
        if hint.removesuffix(_QUIET) == self._token:
            return
        self._call(self._watchers)
        if not hint.endswith(_QUIET):
            self._call(self._listeners)

    def _call(self, all_told: Mapping[object, Callable[[], None]]) -> None:
        with self._lock:
            told_now = list(all_told.values())
        for told in told_now:
            try:
                told()
            except Exception:
                logger.exception("a listener of the store failed")


class Listener:
    """Hear the hints of a channel in a thread of its own; connect again whenever the connection is lost."""

    def __init__(self, pool: Pool, channel: str, hear: Callable[[str], None]) -> None:
        self._pool, self._channel, self._hear = pool, channel, hear
        self._wake, self._woken = (close_in_forks(each) for each in socket.socketpair())
        self._thread = threading.Thread(target=self._run, name="listener of the store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, from any thread."""
        with suppress(OSError):
            self._wake.send(b"-")
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        pause = 0.1
        with self._wake, self._woken:
            while True:
                with suppress(psycopg.Error, StoreError), self._connect() as db:
                    self._hear("")  # whatever came before
                    pause = 0.1
                    if not self._follow(db):
                        return
                if select.select([self._woken], [], [], pause)[0]:
                    return
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _connect(self) -> TimedConnection:
        db = connect(self._pool.settings, patience=5.0, dsn=self._pool.settings.listen_dsn)
        db.execute(f'LISTEN "{self._channel}"'.encode())
        return db

    def _follow(self, db: TimedConnection) -> bool:
        """Hear hints until the connection is lost; return False at the end of this listener."""
        while True:
            ready = select.select([db.fileno(), self._woken.fileno()], [], [], LOOK_EVERY)[0]
            if self._woken.fileno() in ready:
                return False
            if not ready:
                db.execute(b"SELECT 1")
            for notice in db.notifies(timeout=0):
                self._hear(notice.payload)
