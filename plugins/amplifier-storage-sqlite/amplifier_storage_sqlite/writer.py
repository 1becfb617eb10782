"""The one thread that writes. Jobs that wait together are committed together: one flush to the disk for all."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .faults import closed, store_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")
Job: TypeAlias = "tuple[Callable[[sqlite3.Connection], Any], Future[Any]]"
Outcome: TypeAlias = "tuple[Any, Exception | None]"


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
        with self._lock:
            if self._closed:
                raise closed(self._path)
            self._jobs.put((work, future))
        return future

    def close(self) -> None:
        """Finish what was submitted and close the connection; idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

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
            outcomes = [self._attempt(work) for work, _ in batch]
            self._db.execute("COMMIT")
        except Exception as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            outcomes = [(None, store_error(self._path, error)) for _ in batch]
        for (_, future), (result, failure) in zip(batch, outcomes, strict=True):
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)

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
