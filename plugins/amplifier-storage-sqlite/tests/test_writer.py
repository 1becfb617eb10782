"""Write in one thread for all callers: together, apart, and to the end."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import SessionConflict, StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import open_sqlite
from amplifier_storage_sqlite.opening import open_store
from amplifier_storage_sqlite.writer import Writer
from tests.dead_mounts import unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start


class TracedWriter(Writer):
    """A writer whose first job waits for `gate`, so that those submitted meanwhile wait together."""

    def __init__(self, path: Path) -> None:
        self.db = open_store(path, 1)
        self.db.execute("CREATE TABLE numbers (n INTEGER NOT NULL)")
        self.statements: list[str] = []
        self.db.set_trace_callback(self.statements.append)
        self.gate = threading.Event()
        super().__init__(self.db, path)
        self.begun = threading.Event()
        self.submit(self._hold_up)
        self.begun.wait()

    def _hold_up(self, db: sqlite3.Connection) -> None:
        self.begun.set()
        self.gate.wait()

    def insert(self, number: int | None) -> Future[int]:
        return self.submit(_inserting(number))

    def numbers(self) -> list[int]:
        query = "SELECT n FROM numbers ORDER BY rowid"
        return self.submit(lambda db: [n for (n,) in db.execute(query).fetchall()]).result()


def _inserting(number: int | None) -> Callable[[sqlite3.Connection], int]:
    return lambda db: db.execute("INSERT INTO numbers VALUES (?)", (number,)).rowcount


@pytest.fixture
def writer(path: Path) -> Iterator[TracedWriter]:
    writer = TracedWriter(path)
    yield writer
    writer.gate.set()
    writer.close()


def test_writes_that_wait_together_are_committed_together(writer: TracedWriter) -> None:
    inserted = [writer.insert(number) for number in range(16)]
    writer.gate.set()
    assert [future.result() for future in inserted] == [1] * 16
    assert writer.statements.count("COMMIT") == 2, "one for the job that held the writer up, one for the sixteen"
    assert writer.numbers() == list(range(16))


async def test_what_the_tasks_of_a_loop_write_at_once_is_committed_together(writer: TracedWriter) -> None:
    writer.gate.set()
    assert writer.numbers() == []
    before = writer.statements.count("COMMIT")
    await asyncio.gather(*(writer.run(_inserting(number)) for number in range(16)))
    assert writer.statements.count("COMMIT") == before + 1
    assert writer.numbers() == list(range(16))


def test_a_write_that_fails_undoes_itself_alone(writer: TracedWriter) -> None:
    def insert_and_fail(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO numbers VALUES (99)")
        raise SessionConflict("s", "no")

    before, failing, after = writer.insert(1), writer.submit(insert_and_fail), writer.insert(2)
    writer.gate.set()
    with pytest.raises(SessionConflict):
        failing.result()
    assert (before.result(), after.result()) == (1, 1)
    assert writer.numbers() == [1, 2]


def test_a_write_that_fails_before_it_changed_anything_holds_up_no_other(writer: TracedWriter) -> None:
    def fail(db: sqlite3.Connection) -> None:
        raise SessionConflict("s", "no")

    before, failing, after = writer.insert(1), writer.submit(fail), writer.insert(2)
    writer.gate.set()
    with pytest.raises(SessionConflict):
        failing.result()
    assert (before.result(), after.result()) == (1, 1)
    assert "ROLLBACK" not in writer.statements
    assert writer.numbers() == [1, 2]


def test_a_value_that_is_missing_is_a_value_error(writer: TracedWriter) -> None:
    writer.gate.set()
    with pytest.raises(ValueError, match=r"NOT NULL constraint failed: numbers\.n"):
        writer.insert(None).result()


def test_a_full_disk_fails_the_write_and_the_next_one_works_when_there_is_space(writer: TracedWriter) -> None:
    writer.gate.set()
    pages = writer.submit(lambda db: int(db.execute("PRAGMA page_count").fetchone()[0])).result()
    writer.submit(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone()).result()
    with pytest.raises(StoreUnavailable, match=r"store\.db: the disk is full; what was acknowledged is kept"):
        writer.submit(lambda db: db.execute("INSERT INTO numbers VALUES (zeroblob(100000))")).result()
    writer.submit(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchone()).result()
    assert writer.insert(1).result() == 1
    assert writer.numbers() == [1]


def test_a_batch_that_sqlite_undid_fails_whole(writer: TracedWriter) -> None:
    def undone(db: sqlite3.Connection) -> None:
        db.execute("ROLLBACK")  # as SQLite itself does when it cannot go on
        raise sqlite3.OperationalError("database or disk is full")

    before, failing, after = writer.insert(1), writer.submit(undone), writer.insert(2)
    writer.gate.set()
    for future in (before, failing, after):
        with pytest.raises(StoreUnavailable):
            future.result()
    assert writer.numbers() == []


@contextmanager
def no_growth() -> Iterator[None]:
    """Let no file of this process grow: SQLite reports a disk I/O error."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_fails_while_its_folder_cannot_be_reached_fails_the_write_and_not_the_writer(
    writer: TracedWriter, path: Path
) -> None:
    writer.gate.set()
    with ExitStack() as stack:

        def insert_much(db: sqlite3.Connection) -> None:
            stack.enter_context(unreachable(path.parent))  # after the look at the place of the file
            db.execute("INSERT INTO numbers VALUES (zeroblob(1000000))")

        with no_growth(), pytest.raises(StoreUnavailable, match=r"store\.db: cannot be opened \(File name too long\)"):
            writer.submit(insert_much).result(60)
    assert writer.insert(1).result(60) == 1
    assert writer.numbers() == [1]


def test_a_listener_that_fails_is_told_and_ends_no_writer(
    writer: TracedWriter, caplog: pytest.LogCaptureFixture
) -> None:
    writer.gate.set()
    assert writer.numbers() == []

    def fail() -> None:
        raise ZeroDivisionError

    writer.committed = fail
    assert [writer.insert(number).result(60) for number in (1, 2)] == [1, 1]
    writer.close()
    assert "store.db: the writer failed after a write, and goes on" in caplog.text


def test_closing_finishes_what_was_submitted(path: Path, writer: TracedWriter) -> None:
    inserted = [writer.insert(number) for number in range(5)]
    closing = threading.Thread(target=writer.close)
    closing.start()
    writer.gate.set()
    closing.join()
    assert [future.result() for future in inserted] == [1] * 5
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        writer.insert(6)


async def test_a_store_that_is_closed_at_once_keeps_what_its_loop_had_submitted(path: Path) -> None:
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    appended, _ = await asyncio.gather(store.append("s", [{"n": 0}], at=0), store.close())
    again = open_sqlite({"path": path})
    assert (appended, await again.read("s")) == (1, [{"n": 0}])
    await again.close()


async def test_a_closed_store_says_so(path: Path) -> None:
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    await asyncio.gather(store.close(), store.close())
    for use in (store.get("s"), store.update("s", name="x"), store.sessions(), store.last_sequence()):
        with pytest.raises(StoreUnavailable, match=r"store\.db: the store is closed"):
            await use
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]


async def test_a_write_whose_caller_is_cancelled_is_carried_out(store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    caller = asyncio.create_task(store.append("s", [{"n": 0}], at=0))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await store.update("s", name="after it")
    assert await store.read("s") == [{"n": 0}]


def test_a_store_serves_several_event_loops_at_once(path: Path) -> None:
    store = open_sqlite({"path": path})

    async def work(name: str) -> None:
        await store.create(SessionRecord(name))
        for at in range(10):
            await store.append(name, [{"by": name, "at": at}], at=at)

    threads = [threading.Thread(target=lambda name=f"s{n}": asyncio.run(work(name))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def check() -> None:
        for n in range(4):
            assert await store.read(f"s{n}") == [{"by": f"s{n}", "at": at} for at in range(10)]
        await store.close()

    asyncio.run(check())


def test_a_program_that_forgets_to_close_ends(path: Path, start: Start) -> None:
    script = "asyncio.run(open_sqlite({'path': sys.argv[1]}).create(SessionRecord('s')))"
    process = start(script, path)
    process.communicate()
    assert process.returncode == 0
