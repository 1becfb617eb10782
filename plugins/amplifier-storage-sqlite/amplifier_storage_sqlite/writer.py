"""The one thread that writes. Jobs that wait together are committed together: one flush to the disk for all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from .faults import closed, store_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")
Loop: TypeAlias = "asyncio.AbstractEventLoop | None"
AnyFuture: TypeAlias = "Future[Any] | asyncio.Future[Any]"
Outcome: TypeAlias = "tuple[Any, Exception | None]"


class Job(NamedTuple):
    """What is to be done; its future belongs to `loop`, or is one that any thread may resolve."""

    work: Callable[[sqlite3.Connection], Any]
    future: AnyFuture
    loop: Loop


class Writer:
    """Owns a connection and runs functions on it, each within a transaction; usable from any thread."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        # a daemon, so that a program that forgets to close ends; nothing that it then loses was acknowledged
        self._thread = threading.Thread(target=self._run, name=f"writer of {path.name}", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run `work`; the future is resolved when what it did is durable, or fails when none of it happened.

        What was submitted is carried out: the future cannot be cancelled. Raises `StoreUnavailable` after `close`.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self._put(work, future, None)
        return future

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do as `submit` does, and wait; who is cancelled meanwhile does not learn how it ended."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put(work, future, loop)
        return await future

    def close(self) -> None:
        """Finish what was submitted and close the connection; idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _put(self, work: Callable[[sqlite3.Connection], T], future: AnyFuture, loop: Loop) -> None:
        with self._lock:
            if self._closed:
                raise closed(self._path)
            self._jobs.put(Job(work, future, loop))

    def _run(self) -> None:
        while batch := self._next_batch():
            self._commit(batch)
        self._db.close()

    def _next_batch(self) -> list[Job]:
        """Wait for a job and return all that wait by then; none when there will be no more."""
        batch: list[Job] = []
        while (job := self._jobs.get()) is not None:
            batch.append(job)
            if self._jobs.empty():
                return batch
        if batch:
            self._jobs.put(None)  # for the next call
        return batch

    def _commit(self, batch: list[Job]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(job.work) for job in batch]
            self._db.execute("COMMIT")
        except Exception as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            outcomes = [(None, store_error(self._path, error)) for _ in batch]
        _tell(batch, outcomes)

    def _attempt(self, work: Callable[[sqlite3.Connection], Any]) -> Outcome:
        self._db.execute("SAVEPOINT job")
        outcome: Outcome
        try:
            outcome = work(self._db), None
        except Exception as error:
            if not self._db.in_transaction:
                raise  # the disk is full, say: SQLite has undone the jobs before this one too
            self._db.execute("ROLLBACK TO job")
            outcome = None, store_error(self._path, error)
        self._db.execute("RELEASE job")
        return outcome


def _tell(batch: list[Job], outcomes: list[Outcome]) -> None:
    """Resolve the futures, those of one event loop together: waking it for each would take longer than the write."""
    by_loop: dict[Loop, list[tuple[AnyFuture, Outcome]]] = {}
    for job, outcome in zip(batch, outcomes, strict=True):
        by_loop.setdefault(job.loop, []).append((job.future, outcome))
    for loop, resolved in by_loop.items():
        if loop is None:
            _resolve(resolved)
        else:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_resolve, resolved)


def _resolve(resolved: list[tuple[AnyFuture, Outcome]]) -> None:
    for future, (result, failure) in resolved:
        if future.done():
            continue  # its caller was cancelled
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
