"""Measure forks and long histories in rows and in steps of SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import InvalidSessionId, SessionConflict, SessionExists, SessionNotFound
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import sessions
from amplifier_storage_sqlite.opening import connect, open_store
from amplifier_storage_sqlite.reader import Reader
from amplifier_storage_sqlite.rows import SESSIONS
from amplifier_storage_sqlite.store import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Steps


async def test_a_fork_is_one_row_and_copies_nothing(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("source"))
    await store.append("source", [{"n": n} for n in range(1000)], at=0)
    await store.create(SessionRecord("fork", fork_of="source", fork_at=1000))
    db = sqlite3.connect(path)
    rows = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("sessions", "messages")]
    db.close()
    assert rows == [2, 1000]
    assert (await store.read("fork"))[-1] == {"n": 999}


async def test_a_fork_without_a_point_shares_all_there_is_now(store: SqliteStore) -> None:
    await store.create(SessionRecord("source"))
    await store.append("source", [{"n": 0}, {"n": 1}], at=0)
    fork = await store.create(SessionRecord("fork", fork_of="source"))
    assert (fork.fork_at, fork.message_count) == (2, 2)


async def test_a_session_that_is_no_fork_begins_empty_whatever_its_record_says(store: SqliteStore) -> None:
    created = await store.create(SessionRecord("s", fork_at=3, message_count=3))
    assert (created.fork_at, created.message_count) == (None, 0)
    assert await store.append("s", [{}], at=0) == 1


async def test_a_long_chain_of_forks_is_read_whole_and_in_part(store: SqliteStore) -> None:
    await store.create(SessionRecord("f0"))
    await store.append("f0", [{"n": 0}], at=0)
    for depth in range(1, 150):
        await store.create(SessionRecord(f"f{depth}", fork_of=f"f{depth - 1}", fork_at=depth))
        await store.append(f"f{depth}", [{"n": depth}], at=depth)
    assert await store.read("f149") == [{"n": n} for n in range(150)]
    assert await store.read("f149", 70, 73) == [{"n": 70}, {"n": 71}, {"n": 72}]


async def test_reading_the_end_visits_the_end_alone(store: SqliteStore, steps: Steps) -> None:
    await store.create(SessionRecord("source"))
    await store.append("source", [{"n": n} for n in range(20_000)], at=0)
    await store.create(SessionRecord("fork", fork_of="source"))
    last = steps(lambda db: sessions.read(db, "fork", 19_999, 20_000))
    whole = steps(lambda db: sessions.read(db, "fork", 0, 20_000))
    assert last < 200 < whole


async def test_listing_the_newest_visits_the_newest_alone(path: Path, store: SqliteStore, steps: Steps) -> None:
    db = connect(path, 1)
    db.execute("BEGIN")
    for n in range(10_000):
        sessions.create(db, SESSIONS.row(SessionRecord(f"s{n}", project=f"/p{n % 2}")))
    db.execute("COMMIT")
    db.close()
    assert steps(lambda db: sessions.list_sessions(db, {}, 20)) < 5_000
    assert steps(lambda db: sessions.list_sessions(db, {"project": "/p1"}, 20)) < 5_000
    assert len(await store.sessions()) == 10_000
    assert [record.session_id for record in await store.sessions(project="/p1", limit=2)] == ["s9999", "s9997"]


async def test_histories_longer_than_the_loop_reads_itself_are_read_whole(store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    messages = [{"n": n} for n in range(SMALL + 1)]
    await store.append("s", messages, at=0)
    assert await store.read("s") == messages
    assert await store.read("s", -5, 10**30) == messages


async def test_read_sync_reads_within_a_loop_and_in_any_thread(store: SqliteStore) -> None:
    messages = [{"n": n} for n in range(SMALL * 2)]
    await store.create(SessionRecord("s"))
    await store.append("s", messages, at=0)
    assert store.read_sync("s") == await asyncio.to_thread(store.read_sync, "s") == messages
    assert store.read_sync("s", 3, 5) == messages[3:5]
    with pytest.raises(SessionNotFound):
        store.read_sync("nobody")
    with pytest.raises(InvalidSessionId):
        store.read_sync("../up")


async def test_a_session_costs_the_same_to_make_however_many_have_a_parent(
    path: Path, store: SqliteStore, steps: Steps
) -> None:
    await store.create(SessionRecord("source"))
    first = SESSIONS.row(SessionRecord("a", parent_id="source", fork_of="source"))
    alone = steps(lambda db: sessions.create(db, first))
    with closing(connect(path, 1)) as db:
        db.execute("BEGIN")
        for n in range(2000):
            sessions.create(db, SESSIONS.row(SessionRecord(f"s{n}", parent_id=f"s{n - 1}" if n else "gone")))
        db.execute("COMMIT")
    last = SESSIONS.row(SessionRecord("b", parent_id="s1999", fork_of="source"))
    assert steps(lambda db: sessions.create(db, last)) < alone + 20
    with pytest.raises(SessionConflict, match="session 'gone' cannot have the parent 's1999'"):
        await store.create(SessionRecord("gone", parent_id="s1999"))
    await store.create(SessionRecord("gone", parent_id="source"))
    with pytest.raises(SessionExists):
        await store.create(SessionRecord("gone", parent_id="s1999"))


async def test_what_a_session_spawned_is_found_without_a_look_at_its_forks(
    path: Path, store: SqliteStore, steps: Steps
) -> None:
    await store.create(SessionRecord("source"))
    for name in ("first", "second"):
        await store.create(SessionRecord(name, parent_id="source"))
    await store.create(SessionRecord("of-an-event", parent_id="source", event_id="e"))
    assert [each.session_id for each in await store.spawned("source")] == ["second", "first"]
    alone = steps(lambda db: sessions.list_spawned(db, "source"))
    with closing(connect(path, 1)) as db:
        db.execute("BEGIN")
        for n in range(2000):
            sessions.create(db, SESSIONS.row(SessionRecord(f"f{n}", parent_id="source", fork_of="source")))
        db.execute("COMMIT")
    assert steps(lambda db: sessions.list_spawned(db, "source")) < alone + 20
    assert [each.session_id for each in await store.spawned("source")] == ["second", "first"]
    assert await store.spawned("nobody") == []


def test_all_that_one_read_asks_for_is_of_one_moment(path: Path) -> None:
    writing = open_store(path, 1)
    reader = Reader(path, 1)

    def counts(db: sqlite3.Connection) -> list[int]:
        found = []
        for name in ("a", "b"):
            found.append(db.execute("SELECT count(*) FROM sessions").fetchone()[0])
            sessions.create(writing, SESSIONS.row(SessionRecord(name)))
        return found

    assert reader.run(counts) == [0, 0]
    assert reader.run(lambda db: db.execute("SELECT count(*) FROM sessions").fetchone()[0]) == 2
    reader.close()
    writing.close()


@pytest.mark.parametrize("prefix", ["\ud800", "a\0", "../", "x" * 10_000_000], ids=["surrogate", "nul", "path", "long"])
async def test_what_no_id_begins_with_finds_nothing(prefix: str, store: SqliteStore) -> None:
    await store.create(SessionRecord("a"))
    assert await store.find(prefix) == []
