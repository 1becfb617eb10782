"""Write in the event loop what is short, alone, and waits for nobody; everything else goes to the thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from amplifier_core import disk_pace
from amplifier_core.disk_pace import EACH, SHORT
from amplifier_core.errors import SessionConflict, StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import log_room, open_sqlite
from amplifier_storage_sqlite.opening import WritingConnection, open_store
from amplifier_storage_sqlite.writer import IN_A_ROW
from tests.forked_stores import check_fork

FORKS = """
from amplifier_core.errors import StoreUnavailable

def in_fork(work):
    if not (child := os.fork()):
        work(asyncio.new_event_loop().run_until_complete)
        os._exit(0)
    os.waitpid(child, 0)

def use(run):
    for each in (lambda: run(store.sessions()), lambda: run(store.get("s")), lambda: store.read_sync("s")):
        try:
            say(each())
        except StoreUnavailable as error:
            say(error)
    run(store.close())
    try:
        open_sqlite({"path": sys.argv[1]})
    except StoreUnavailable as error:
        say(error)

def open_anew(run):
    anew = open_sqlite({"path": sys.argv[1]})
    run(anew.create(SessionRecord("of-the-fork")))
    run(anew.close())

def list_sessions(store):
    say(sorted(each.session_id for each in run(store.sessions())))

run = asyncio.new_event_loop().run_until_complete
store = open_sqlite({"path": sys.argv[1]})
run(store.create(SessionRecord("s")))
run(store.sessions())
in_fork(use)
list_sessions(store)
run(store.close())
in_fork(open_anew)
list_sessions(store := open_sqlite({"path": sys.argv[1]}))
run(store.close())
"""

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start

TURN = [{"text": "x" * 1000}, {"text": "y" * 1000}]


@pytest.fixture(autouse=True)
def _is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take writes for quick that a busy machine holds up."""
    monkeypatch.setattr(disk_pace, "QUICK", 30.0)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """A store that has written before: the first write is the thread's."""
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("first"))
    yield store
    await store.close()


def _place(_: sqlite3.Connection) -> bool:
    """Return whether this thread is the one of the tests."""
    return threading.current_thread() is threading.main_thread()


async def _is_in_loop(store: SqliteStore, size: int = 0) -> bool:
    return await store._writer.run(_place, ["x" * size])


async def test_a_short_write_that_waits_alone_is_carried_out_in_the_loop(store: SqliteStore) -> None:
    assert await _is_in_loop(store, SHORT - EACH)
    assert not await _is_in_loop(store, SHORT - EACH + 1)
    assert not await store._writer.run(_place, ["x"] * 10_000)  # many are not short either
    assert not await store._writer.run(_place)  # whoever gives no values does not know how long it takes
    assert await asyncio.gather(_is_in_loop(store), _is_in_loop(store)) == [False, False]
    assert await _is_in_loop(store)


async def test_a_slow_write_sends_the_next_ones_to_the_thread(store: SqliteStore) -> None:
    store._writer._pace.note(60.0)
    places = [await _is_in_loop(store) for _ in range(disk_pace.ENOUGH)]
    assert not any(places)


async def test_the_thread_gets_one_in_a_row_and_keeps_the_log_short(store: SqliteStore, path: Path) -> None:
    await store.create(SessionRecord("s"))
    for turn in range(1000):
        await store.append("s", TURN, at=2 * turn)
    log = path.with_name(path.name + "-wal").stat().st_size
    assert log <= log_room.ENOUGH + log_room.LARGEST
    places = [await _is_in_loop(store) for _ in range(2 * IN_A_ROW)]
    assert not all(places)


async def test_the_loop_goes_on_while_another_process_writes(store: SqliteStore, path: Path) -> None:
    await store.create(SessionRecord("s"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        appending = asyncio.ensure_future(store.append("s", TURN, at=0))
        for _ in range(5):
            await asyncio.sleep(0)  # a loop that waited for the other one would end with its time limit
        assert not appending.done()
        other.execute("COMMIT")
    assert await appending == 2
    assert await store.read("s") == TURN


async def test_what_fails_in_the_loop_fails_as_in_the_thread(store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    places = []

    def work(db: sqlite3.Connection) -> None:
        places.append(_place(db))
        db.execute("UPDATE sessions SET name = 'half done'")
        raise ValueError("after a change")

    with pytest.raises(ValueError, match="after a change"):
        await store._writer.run(work, ())
    assert places[0] and not places[-1]
    with pytest.raises(SessionConflict):
        await store.append("s", TURN, at=7)
    assert (await store.get("s")).name == ""
    assert await store.append("s", TURN, at=0) == 2


async def test_an_interrupted_write_is_undone_and_the_store_goes_on(path: Path) -> None:
    """A program without a handler for Ctrl-C gets it in the middle of a write."""

    def interrupt(db: sqlite3.Connection) -> None:
        db.execute("UPDATE sessions SET name = 'half done'")
        raise KeyboardInterrupt

    def program() -> None:
        async def main() -> None:
            store = open_sqlite({"path": path})
            opened.append(store)
            await store.create(SessionRecord("s"))
            await store._writer.run(interrupt, ())

        asyncio.run(main())

    opened: list[SqliteStore] = []
    with pytest.raises(KeyboardInterrupt):
        await asyncio.to_thread(program)
    [store] = opened
    assert (await store.get("s")).name == ""
    assert await store.append("s", TURN, at=0) == 2
    await store.close()


async def test_writes_keep_their_order_behind_those_of_the_thread(store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    begun, may_end = threading.Event(), threading.Event()

    def hold_up(_: sqlite3.Connection) -> None:
        begun.set()
        assert may_end.wait(20)

    held = asyncio.ensure_future(store._writer.run(hold_up))
    assert await asyncio.to_thread(begun.wait, 20)
    appends = []
    for turn in range(3):
        appends.append(asyncio.ensure_future(store.append("s", TURN, at=2 * turn)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    may_end.set()
    assert await asyncio.gather(*appends) == [2, 4, 6]
    await held


async def test_a_closed_store_takes_no_write_in_the_loop(path: Path) -> None:
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    last = asyncio.ensure_future(store.append("s", TURN, at=0))
    await asyncio.sleep(0)  # it waits for its turn in the loop
    await store.close()
    assert await last == 2
    with pytest.raises(StoreUnavailable):
        await store.append("s", TURN, at=2)


async def test_a_loop_leaves_the_write_of_another_loop_to_the_thread(store: SqliteStore) -> None:
    """A future belongs to its loop: another one would neither resolve it safely nor wake who waits."""
    is_put, may_go_on = threading.Event(), threading.Event()

    async def write() -> bool:
        writing = asyncio.ensure_future(_is_in_loop(store))
        await asyncio.sleep(0)
        is_put.set()
        assert may_go_on.wait(20)
        return await writing

    own = asyncio.ensure_future(_is_in_loop(store))
    await asyncio.sleep(0)  # this loop will look for its write next
    store._writer.submit(lambda _: None).result()  # but the thread has it now
    with ThreadPoolExecutor() as threads:
        other = threads.submit(asyncio.run, write())
        assert is_put.wait(20)
        await asyncio.sleep(0)  # this loop finds the write of the other one
        may_go_on.set()
        assert not await asyncio.wrap_future(other)
    assert not await own


async def test_a_process_folds_a_long_log_however_little_it_writes(store: SqliteStore, path: Path) -> None:
    """Many of them would else leave an ever longer one, as long as another process has the file open."""

    def note_place(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO triggers (project, trigger) VALUES ('p', ?)", (str(len(places)),))
        places.append(_place(db))

    places: list[bool] = []
    for _ in range(2):
        other = open_sqlite({"path": path})
        await other._writer.run(note_place, ())
        await other._writer.run(note_place, ())
        await other.close()
    assert places == [False, True, False, True]


async def test_a_job_that_changes_nothing_is_not_the_one_that_folds_the_log(store: SqliteStore, path: Path) -> None:
    await store.create(SessionRecord("s"))
    for turn in range(400):
        await store.append("s", [{"text": "x" * 16_000}], at=turn)
        if not turn % 20:
            await store._writer.run(lambda _: None)
    assert path.with_name(path.name + "-wal").stat().st_size < log_room.ENOUGH + log_room.LARGEST


async def test_the_thread_has_each_write_while_a_reader_keeps_the_log_growing(store: SqliteStore, path: Path) -> None:
    """Each of them folds what it can; a reader that lets go for a moment is not missed."""
    await store.create(SessionRecord("s"))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sessions").fetchall()
        for turn in range(300):
            await store.append("s", [{"text": "x" * 16_000}], at=turn)
        assert not await _is_in_loop(store)
    for turn in range(300, 303):
        await store.append("s", TURN[:1], at=turn)
    assert await _is_in_loop(store)


async def test_an_interrupted_change_of_patience_is_made_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = WritingConnection.execute

    def interrupt(db: WritingConnection, statement: str) -> sqlite3.Cursor:
        if statement == "PRAGMA wal_autocheckpoint = 0":
            raise KeyboardInterrupt
        return execute(db, statement)

    with closing(open_store(path, 7)) as db:
        monkeypatch.setattr(WritingConnection, "execute", interrupt)
        with pytest.raises(KeyboardInterrupt):
            db.hurry(True)
        db.hurry(False)
        assert db.execute("PRAGMA busy_timeout").fetchone() == (7000,)


async def test_a_fork_of_the_process_writes_nothing(start: Start, path: Path) -> None:
    await check_fork(start, "open_sqlite", path)


async def test_a_fork_of_the_process_reads_nothing_and_opens_the_file_once_it_was_closed_before(
    start: Start, path: Path
) -> None:
    forking = start(FORKS, path)
    answers = (await asyncio.to_thread(forking.communicate))[0].splitlines()
    refused = "is a fork of. Close it before the fork and open it after, or start the process anew"
    assert [refused in answer for answer in answers] == [True] * 4 + [False] * 2
    assert answers[4:] == ["['s']", "['of-the-fork', 's']"]
