"""Connect to PostgreSQL: a pool of connections, each with limits on every wait.

Every write is one statement and a transaction by itself: no client holds a lock while it is frozen or cut off. A slot
is a place of the pool. It numbers its writes, so a write whose answer was lost is asked for again under its number, and
the database returns the result of the first. Behind a transaction pooler the connections work alike: nothing is kept in
them.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import ref

import psycopg
from psycopg import sql

from amplifier_core.errors import StoreError, StoreUnavailable
from amplifier_core.process_forks import close_in_forks

from .faults import AGAIN, closed_error, connect_error, lost_error, replaced_error, store_error
from .values import arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg.abc import RV, PQGen

    from .settings import Settings

_PERFORM = "SELECT @.perform(%s, %s, %s, %s::jsonb, %s::text[])"
_IN_STORE = " FROM @.version WHERE store = %s AND tableoid = %s"
IDLE_IN_TRANSACTION = 1.0
"""Seconds."""
_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two attempts at a write with a lost answer."""


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is given up when an answer takes longer than `patience` seconds, however quiet the network."""

    patience: float | None = None
    in_fork: object = None
    """Lives as long as the connection."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Do as psycopg does, at most for `patience` seconds."""
        end = None if self.patience is None else time.monotonic() + self.patience
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except psycopg.OperationalError:
            if end is not None and time.monotonic() >= end and timeout is None:
                self.pgconn.finish()
                raise psycopg.OperationalError(f"no answer for {self.patience:g} s") from None
            raise


def connect(settings: Settings, *, patience: float | None = None, dsn: str | None = None) -> TimedConnection:
    """Return a connection with its limits, in autocommit mode. Raises `StoreUnavailable`."""
    limits = {
        "statement_timeout": settings.timeout,
        "lock_timeout": settings.lock_timeout,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION,
    }
    try:
        # no prepared statements: behind a transaction pooler the next statement may run in another server process
        made = TimedConnection.connect(dsn or settings.dsn, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise connect_error(settings.place, error) from None
    made.in_fork = close_in_forks(_InFork(made))
    try:
        made.patience = patience or settings.timeout + 5
        text = "; ".join(f"SET {name} = {round(seconds * 1000)}" for name, seconds in limits.items())
        made.execute(text.encode())
        return made
    except psycopg.Error as error:
        made.close()
        raise connect_error(settings.place, error) from None


class Slot:
    """One place of the pool: a name, the number of its last write, and a connection, if it is open."""

    def __init__(self) -> None:
        self.name = uuid4().hex
        self.number = 0
        self.connection: TimedConnection | None = None

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self.connection is not None:
            with suppress(psycopg.Error):
                self.connection.close()
            self.connection = None


class Pool:
    """Run statements in the calling thread, as many at a time as there are slots; usable from any thread.

    A fork of the process gets connections of its own.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.identity: tuple[str, int] | None = None
        """The id of the store, and that of its table `version`: writes go to no other. `migrate` sets it.

        None for a store without an id: writes go to whatever is there.
        """
        self._prefix = sql.Identifier(settings.schema).as_string() + "."
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._idle: list[Slot] = []
        self._slots: list[Slot] = []

    def expand(self, statement: str) -> bytes:
        """Return a statement with the schema in place of each `@.`."""
        return statement.replace("@.", self._prefix).encode()

    def read(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return the rows of a query. Raises `StoreUnavailable`, `StoreDamaged`, and the errors of functions."""
        query = self.expand(statement)
        slot = self._take()
        try:
            return self._read(slot, query, values)
        except Exception as error:
            raise self._translate(error) from error
        finally:
            self._give_back(slot)

    def write(self, work: str, given: Mapping[str, Any], texts: Sequence[str] = ()) -> Any:
        """Perform a write in a transaction and return its result; it is durable, or nothing is stored.

        Raises as `read` does, and `StoreUnavailable` when another store has taken the place of the one that was opened.
        A `StoreUnavailable` about a lost answer says that the write may be stored.
        """
        encoded = arguments(given)
        slot = self._take()
        try:
            slot.number += 1
            return self._write(slot, (slot.name, slot.number, work, encoded, list(texts), *(self.identity or ())))
        except Exception as error:
            raise self._translate(error) from error
        finally:
            self._give_back(slot)

    def close(self) -> None:
        """Close all connections, after the running statements; idempotent."""
        if self._process != os.getpid():
            self._begin()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._idle) == len(self._slots), self.settings.timeout)
            idle, self._idle, self._slots = self._idle, [], []
        named = [slot.name for slot in idle if slot.number]
        with suppress(Exception):  # `purge` forgets them otherwise
            if named and (connection := next(slot.connection for slot in idle if slot.connection)) is not None:
                connection.execute(self.expand("DELETE FROM @.operations WHERE slot = ANY (%s)"), (named,))
        for slot in idle:
            slot.close()

    def _take(self) -> Slot:
        """Return a slot, waiting for one as long as a statement may take."""
        if self._process != os.getpid():  # a fork, where no other thread runs yet
            self._begin()
        with self._changed:
            free = lambda: self._closed or self._idle or len(self._slots) < self.settings.pool  # noqa: E731
            if not self._changed.wait_for(free, self.settings.timeout):
                raise StoreUnavailable(
                    self.settings.place,
                    f"all {self.settings.pool} connections were in use for {self.settings.timeout:g} s. Allow more "
                    f"with the store's pool",
                )
            if self._closed:
                raise closed_error(self.settings.place)
            if self._idle:
                return self._idle.pop()
            slot = Slot()
            self._slots.append(slot)
            return slot

    def _give_back(self, slot: Slot) -> None:
        if slot.connection is not None and slot.connection.closed:
            slot.connection = None
        with self._changed:
            if slot in self._slots:  # else this is a fork, and the slot is the parent's
                self._idle.append(slot)
            self._changed.notify_all()

    def _connect(self, slot: Slot) -> TimedConnection:
        if slot.connection is None:
            slot.connection = connect(self.settings)
        return slot.connection

    def _read(self, slot: Slot, query: bytes, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        was_open = slot.connection is not None
        try:
            return self._connect(slot).execute(query, values or None).fetchall()
        except psycopg.Error as error:
            if not (was_open and _is_lost(slot, error)):
                raise
        slot.close()  # the server was started again, say
        return self._connect(slot).execute(query, values or None).fetchall()

    def _write(self, slot: Slot, values: Sequence[Any]) -> Any:
        query, lost, pause = self.expand(_PERFORM + (_IN_STORE if self.identity else "")), None, _PAUSE
        end = time.monotonic() + self.settings.resolve_timeout
        while True:
            try:
                found = self._connect(slot).execute(query, values).fetchall()
                break
            except psycopg.errors.UndefinedColumn as error:  # of a version before stores had an id
                raise replaced_error(self.settings.place) from error
            except StoreError:
                if lost is None:  # nothing was sent
                    raise
            except psycopg.Error as error:
                if _is_lost(slot, error):
                    lost = error
                    slot.close()
                elif error.sqlstate not in AGAIN or time.monotonic() > end:
                    raise
            if time.monotonic() > end or self._closed:
                raise lost_error(self.settings.place, lost or TimeoutError(), self.settings.resolve_timeout)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if not found:
            raise replaced_error(self.settings.place)
        return found[0][0]

    def _translate(self, error: Exception) -> Exception:
        return store_error(self.settings.place, error)


class _InFork:
    """Let go of a connection in forks, without a word to the server: it belongs to the parent."""

    def __init__(self, connection: TimedConnection) -> None:
        self._connection = ref(connection)

    def close(self) -> None:
        """Replace the socket by nothing."""
        connection = self._connection()
        if connection is not None and not connection.closed:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, connection.pgconn.socket, inheritable=False)
            os.close(nothing)


def _is_lost(slot: Slot, error: psycopg.Error) -> bool:
    """Return whether an error leaves open what became of the statement, or says that the server went away."""
    if slot.connection is None or slot.connection.closed:
        return True
    return (error.sqlstate or "").startswith(("57P", "08"))
