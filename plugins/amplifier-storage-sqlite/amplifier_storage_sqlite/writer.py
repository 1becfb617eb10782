"""Write in one thread; jobs waiting together share one transaction and one flush to the disk.

A short job that waits alone is carried out in its event loop while the disk is quick: nobody else has to wait for it
there, and it takes half of the time. What does not succeed at once is left to the thread: it waits for other processes,
repairs indexes, and tells what is wrong. A loop leaves the log to the thread too, which has the first job and folds it
into the file. What is deleted is overwritten in the file, but stays in the log, which the thread ends after deletions.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from amplifier_core.disk_pace import DiskPace, is_short
from amplifier_core.free_locks import call_if_free
from amplifier_core.waking import call_in, watch_calls

from .faults import closed_error, is_index_damage, store_error
from .log_room import LogRoom
from .opening import place_of, require_own, require_place

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .opening import WritingConnection

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work: TypeAlias = "Callable[[sqlite3.Connection], Any]"
Loop: TypeAlias = "asyncio.AbstractEventLoop | None"
AnyFuture: TypeAlias = "Future[Any] | asyncio.Future[Any]"
Outcome: TypeAlias = "tuple[Any, Exception | None]"
Attempt: TypeAlias = "Callable[[Work], Outcome]"

IN_A_ROW = 32
"""Jobs carried out in event loops, at most, until the thread has one, and folds a long log into the file."""
ERASE_AFTER = 1.0
"""Seconds from a deletion to the end of the log that has the deleted texts: one for all deletions within them."""


class Job(NamedTuple):
    """Hold a function with its future; the future belongs to `loop`, or to no loop and any thread."""

    work: Work
    future: AnyFuture
    loop: Loop
    is_short: bool = False
    erases: bool = False


class HalfDone(Exception):
    """Report a job failing after a change: the change must be undone."""


class IndexFailure(Exception):
    """Report a job failing by a damaged index, which can be rebuilt."""


class Writer:
    """Own a connection and run functions on it, each in a transaction; usable from any thread."""

    def __init__(self, db: WritingConnection, path: Path) -> None:
        self._db = db
        self._path = path
        self._jobs: list[Job] = []
        self._calls: SimpleQueue[None] = SimpleQueue()  # one item wakes the thread once
        self._calling: set[Loop] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._is_repaired = False
        self._pace = DiskPace()
        self._erased: float | None = None
        """When texts were deleted that may be in the log, or the last attempt to end it was made (monotonic)."""
        self._left_to_loop = 0  # whatever little this process writes, it folds a log that others left
        self._in_use = threading.Lock()  # the connection and the order of jobs; held for good once it is closed
        self.committed: Callable[[], None] | None = None
        """Called after each commit, in the thread that made it."""
        self._place = place_of(path)
        self._process = os.getpid()
        self._room = LogRoom(path)
        # a daemon: a program without `close` ends all the same, and loses nothing acknowledged
        self._thread = threading.Thread(target=self._run, name=f"writer of {path.name}", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run `work`; the future is resolved once its changes are durable, or fails with none of them made.

        `work` may change only rows: it runs again if another job must be undone. A submitted job is always carried out:
        its future cannot be cancelled. Raises `StoreUnavailable` after `close`.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self._put(Job(work, future, None))
        return future

    async def run(
        self, work: Callable[[sqlite3.Connection], T], values: Iterable[object] | None = None, *, erases: bool = False
    ) -> T:
        """Do as `submit` does, and wait; a cancelled caller does not learn the result.

        Work on a few rows, with these short `values`, is carried out in this event loop while the disk is quick. After
        work that `erases` texts, and has no `values`, the log is ended: soon, or when this is closed.
        """
        import asyncio  # not at import: reads need none

        loop = asyncio.get_running_loop()
        watch_calls(loop)
        future: asyncio.Future[T] = loop.create_future()
        self._put(Job(work, future, loop, is_short=values is not None and is_short(values), erases=erases))
        return await future

    def read_idle(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of `query`, which reads some rows; None while this writes, or if the query fails.

        It sees one state. Usable from any thread; waits for nobody. The connection has the pages of its last writes.
        """

        def read() -> T | None:
            try:
                require_own(self._process, self._path)
                require_place(self._path, self._place)
                self._db.execute("BEGIN")
                return query(self._db)
            except Exception:
                return None  # its frames end here, and so do its cursors: an open one would keep an old state
            finally:
                if self._db.in_transaction and os.getpid() == self._process:
                    self._db.execute("ROLLBACK")

        return call_if_free(self._in_use, read)

    def close(self) -> None:
        """Finish submitted jobs and close the connection; idempotent."""
        with self._lock:
            self._closed = True
        self._calls.put(None)
        self._thread.join()

    def _put(self, job: Job) -> None:
        require_own(self._process, self._path)
        loop = job.loop
        with self._lock:
            if self._closed:
                raise closed_error(self._path)
            self._jobs.append(job)
            if loop in self._calling:
                return
            if loop is not None:
                self._calling.add(loop)
        if loop is None:
            self._calls.put(None)
        else:  # after the tasks ready in this loop: their jobs join the same batch
            loop.call_soon(self._call, loop)

    def _call(self, loop: Loop) -> None:
        """Carry out a single short job, or let the thread carry out what waits."""
        with self._lock:
            self._calling.discard(loop)
        may_wait = self._pace.is_quick and self._left_to_loop
        if may_wait and call_if_free(self._in_use, partial(self._carry_out_here, loop)):
            self._follow_up()
        else:
            self._calls.put(None)

    def _carry_out_here(self, loop: Loop) -> bool:
        """Carry out the only waiting job in this thread if it is a short one of `loop`; return whether it succeeded."""
        with self._lock:
            if len(self._jobs) != 1 or not self._jobs[0].is_short or self._jobs[0].loop is not loop:
                return False
            job = self._jobs.pop()
        start = perf_counter()
        try:
            outcome = self._try_at_once(job.work)
        except BaseException:  # Ctrl-C in a program without a handler
            self._roll_back()
            job.future.cancel()
            raise
        if outcome is None:
            with self._lock:
                self._jobs.insert(0, job)
            return False
        self._pace.note(perf_counter() - start)
        self._left_to_loop -= 1
        _resolve([(job.future, outcome)])
        return True

    def _try_at_once(self, work: Work) -> Outcome | None:
        """Return the outcome of a transaction; None if it must wait for another process or `work` fails."""
        self._db.hurry(True)
        try:
            require_place(self._path, self._place)
            self._db.begin(self._path)
            result = work(self._db)
        except Exception:
            self._roll_back()
            return None
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return None, store_error(self._path, error)
        return result, None

    def _run(self) -> None:
        """Carry out jobs until `close`, whatever happens: without this thread each later caller would wait for ever."""
        is_open = True
        while is_open:
            try:
                is_open = self._carry_out_waiting()
            except Exception:  # after a batch: a listener of commits, say
                logger.exception("%s: the writer failed after a write, and goes on", self._path)
                self._calls.put(None)  # it may have been the call of `close`
        if self._erased is not None:
            self._end_log()
        self._in_use.acquire()
        self._db.close()

    def _carry_out_waiting(self) -> bool:
        """Wait for a call and carry out all waiting jobs; return whether more can come."""
        try:
            self._calls.get(timeout=None if self._erased is None else ERASE_AFTER)
        except Empty:
            self._end_log()
            return True
        with self._in_use:
            with self._lock:
                batch, self._jobs, is_open = self._jobs, [], not self._closed
            start, changes = perf_counter(), self._db.total_changes
            outcomes = self._carry_out(batch) if batch else []
            self._pace.note(perf_counter() - start)
            has_changed = self._db.total_changes != changes
            if has_changed:  # a commit of nothing folds no log
                self._left_to_loop = 0 if self._room.is_outgrown() else IN_A_ROW  # each commit tries to fold it
        if batch:
            _notify(batch, outcomes)
            self._follow_up()
        if self._erased is not None and monotonic() - self._erased >= ERASE_AFTER:
            self._end_log()
        elif self._erased is None and has_changed and any(job.erases for job in batch):
            self._erased = monotonic()
        return is_open

    def _end_log(self) -> None:
        """Fold the log into the file and cut it to nothing.

        Nobody waits for it: while another connection reads or writes, the log stays until the next attempt.
        """
        self._erased = monotonic()
        with self._in_use, suppress(sqlite3.Error):
            self._db.hurry(True)
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # the long part, during which others write
            [(is_busy, _, _)] = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not is_busy:
                self._erased = None

    def _follow_up(self) -> None:
        """Tell of a commit, and make room for the next one."""
        if self.committed is not None:
            self.committed()
        self._room.keep()

    def _carry_out(self, batch: list[Job]) -> list[Outcome]:
        """Return the outcome of each job; an error outside of them all is the outcome of all."""
        try:
            self._db.hurry(False)
            try:
                return self._outcomes(batch)
            except IndexFailure:
                self._roll_back()
                self._is_repaired = True  # one bad index blocks nothing; a second damage is another one
                from .checking import rebuild_indexes

                rebuild_indexes(self._db)
                return self._outcomes(batch)
        except Exception as error:
            self._roll_back()
            return [(None, store_error(self._path, error)) for _ in batch]

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            self._db.undo()

    def _outcomes(self, batch: list[Job]) -> list[Outcome]:
        """Run a batch in one transaction, at first without savepoints: they cost a tenth of a turn."""
        try:
            return self._in_transaction(self._attempt, batch)
        except HalfDone:
            self._db.undo()
            return self._in_transaction(self._attempt_apart, batch)

    def _in_transaction(self, attempt: Attempt, batch: list[Job]) -> list[Outcome]:
        require_place(self._path, self._place)
        self._db.begin(self._path)
        outcomes = [attempt(job.work) for job in batch]
        self._db.execute("COMMIT")
        return outcomes

    def _attempt(self, work: Work) -> Outcome:
        before = self._db.total_changes
        try:
            return work(self._db), None
        except Exception as error:
            self._raise_for_index(error)
            if not self._db.in_transaction:
                raise  # the disk is full, say: SQLite has undone the jobs before this one too
            if self._db.total_changes != before:
                raise HalfDone from error
            return None, store_error(self._path, error)

    def _attempt_apart(self, work: Work) -> Outcome:
        self._db.execute("SAVEPOINT job")
        outcome: Outcome
        try:
            outcome = work(self._db), None
        except Exception as error:
            self._raise_for_index(error)
            if not self._db.in_transaction:
                raise
            self._db.undo("ROLLBACK TO job")
            outcome = None, store_error(self._path, error)
        self._db.execute("RELEASE job")
        return outcome

    def _raise_for_index(self, error: Exception) -> None:
        if not self._is_repaired and is_index_damage(error):
            raise IndexFailure from error


def _notify(batch: list[Job], outcomes: list[Outcome]) -> None:
    """Resolve the futures, those of one event loop together: waking it for each would take longer than the write."""
    by_loop: dict[Loop, list[tuple[AnyFuture, Outcome]]] = {}
    for job, outcome in zip(batch, outcomes, strict=True):
        by_loop.setdefault(job.loop, []).append((job.future, outcome))
    for loop, resolved in by_loop.items():
        if loop is None:
            _resolve(resolved)
        else:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                call_in(loop, partial(_resolve, resolved))


def _resolve(resolved: list[tuple[AnyFuture, Outcome]]) -> None:
    for future, (result, failure) in resolved:
        if future.done():
            continue  # its caller was cancelled
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
