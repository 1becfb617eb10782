"""Sessions are listed by their last change, and one more change of a session moves it in no index."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import administer_sqlite, open_sqlite, ordering

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Steps, Unpack

TURN = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]


def _rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


async def _check_lists(store: SqliteStore) -> None:
    """Compare all lists with a sort of all rows."""
    query = "SELECT session_id, project, parent_id, status FROM sessions NOT INDEXED ORDER BY updated DESC, id DESC"
    rows = _rows(store.path, query)
    ids = [row[0] for row in rows]
    assert [each.session_id for each in await store.sessions()] == ids
    assert [each.session_id for each in await store.sessions(limit=5)] == ids[:5]
    of_project = [row[0] for row in rows if row[1] == "/b"]
    assert [each.session_id for each in await store.sessions(project="/b")] == of_project
    assert [each.session_id for each in await store.sessions(project="/b", limit=3)] == of_project[:3]
    of_parent = [row[0] for row in rows if row[2] == "s0"]
    assert [each.session_id for each in await store.sessions(parent_id="s0")] == of_parent
    assert [each.session_id for each in await store.sessions(parent_id="s0", limit=2)] == of_parent[:2]
    assert [each.session_id for each in await store.spawned("s0")] == of_parent
    shown: list[str] = []
    while page := await store.session_page(before=shown[-1] if shown else None, limit=7):
        shown += [each.session_id for each in page]
    assert shown == ids
    failed = [row[0] for row in rows if row[3] == "failed"]
    assert [each.session_id for each in await store.session_page(statuses=("failed",))] == failed
    assert [each.session_id for each in await store.session_page(project="/b", text="S1")] == [
        each for each in of_project if str(each).startswith("s1")
    ]


async def test_every_list_is_in_the_order_of_the_last_changes(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "MOST_RECENT", 4)
    other, chance, counts = open_sqlite({"path": path}), random.Random(7), dict[str, int]()
    for number in range(150):
        by = chance.choice((store, store, other))
        names = sorted(counts)
        act = chance.choice(("create", "append", "append", "append", "update", "delete")) if names else "create"
        name = chance.choice(names) if names else ""
        if act == "create":
            name = f"s{number}"
            await by.create(
                SessionRecord(name, parent_id="s0" if number % 3 else None, project="/ab"[:: 1 + number % 2])
            )
            counts[name] = 0
        elif act == "append":
            counts[name] = await by.append(name, TURN, at=counts[name])
        elif act == "update":
            await by.update(name, status=chance.choice(("failed", "idle")))
        elif name != "s0":
            await by.delete(name)
            del counts[name]
        if number % 10 == 9:
            await _check_lists(store)
            [(recent,)] = _rows(path, "SELECT count(*) FROM sessions WHERE recent IS NOT NULL")
            assert recent <= ordering.MOST_RECENT
    assert administer_sqlite({"path": path}).check() == []
    await other.close()


async def test_one_more_turn_moves_a_session_in_no_index(store: SqliteStore, path: Path) -> None:
    for name in ("a", "b", "c"):
        await store.create(SessionRecord(name))
    with closing(sqlite3.connect(path)) as db, db:
        ordering.restore_order(db)
    listed = _rows(path, "SELECT session_id, listed FROM sessions ORDER BY id")
    for at in range(0, 6, 2):
        await store.append("a", TURN, at=at)
        await store.update("a", name=f"named {at}")
    await store.append("b", TURN, at=0)
    assert _rows(path, "SELECT session_id, recent FROM sessions ORDER BY id") == [("a", 1), ("b", 2), ("c", None)]
    assert _rows(path, "SELECT session_id, listed FROM sessions ORDER BY id") == listed
    assert [each.session_id for each in await store.sessions(limit=2)] == ["b", "a"]


async def test_sessions_move_together_once_many_have_changed(store: SqliteStore, path: Path) -> None:
    for number in range(ordering.MOST_RECENT + 1):
        await store.create(SessionRecord(f"s{number}"))
        assert _rows(path, f"SELECT listed FROM sessions WHERE session_id = 's{number}'") == [(None,)]
        await store.append(f"s{number}", TURN, at=0)
    last = f"s{ordering.MOST_RECENT}"
    assert _rows(path, "SELECT session_id, recent FROM sessions WHERE recent IS NOT NULL") == [(last, 1)]
    assert _rows(path, "SELECT count(*) FROM sessions WHERE listed = updated") == [(ordering.MOST_RECENT,)]
    await store.append("s0", TURN, at=2)  # known no more: it gets a number
    assert _rows(path, "SELECT session_id, recent FROM sessions WHERE recent IS NOT NULL ORDER BY recent") == [
        (last, 1),
        ("s0", 2),
    ]
    assert [each.session_id for each in await store.sessions(limit=2)] == ["s0", last]


async def test_a_list_costs_the_same_however_many_sessions_share_a_time(path: Path, steps: Steps) -> None:
    await open_sqlite({"path": path}).close()
    taken = []
    for size in (100, 5_000):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(
                """INSERT INTO histories WITH RECURSIVE numbers (n) AS (SELECT (SELECT count(*) + 1 FROM histories)
                UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) SELECT n, NULL, 0, 0 FROM numbers""",
                (size,),
            )
            db.execute(
                """INSERT INTO sessions (session_id, name, bundle, bundle_source, bundle_digest, project, status,
                created, updated, message_count, turn_count, config, metadata, history, digest, listed)
                SELECT 's' || id, '', '', '', '', '/p', 'idle', 7, 7, 0, 0, '{}', '{}', id, 0, 7 FROM histories
                WHERE id NOT IN (SELECT history FROM sessions)"""
            )
            db.execute("UPDATE sessions SET recent = id, updated = 9 WHERE id <= 50")
        for where in ("TRUE", "project = '/p'"):
            query = ordering.newest("name", where)
            taken.append(steps(lambda db, query=query: db.execute(query, {"limit": 20}).fetchall()))  # type: ignore[misc]
    assert taken[2:] == pytest.approx(taken[:2], rel=0.1)


@pytest.fixture
def released(unpack: Unpack) -> Path:
    """A store of schema 16: seven sessions, two of them spawned and one a fork, continued in another order."""
    return unpack(16)


async def test_a_store_of_before_keeps_its_order(released: Path) -> None:
    with closing(sqlite3.connect(released)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (16,)
        before = db.execute("SELECT * FROM sessions ORDER BY id").fetchall()
    store = open_sqlite({"path": released})
    ids = [each.session_id for each in await store.sessions()]
    assert ids[1:] == ["fork", "s4", "s0", "s1", "s5", "s3"]
    await _check_lists(store)
    assert [row[: len(before[0])] for row in _rows(released, "SELECT * FROM sessions ORDER BY id")] == before
    assert [each.session_id for each in await store.spawned("s0")] == ["s4", "s3"]
    assert await store.append("s3", TURN, at=0) == 2
    assert [each.session_id for each in await store.sessions(limit=1)] == ["s3"]
    assert [message["content"] for message in await store.read("fork")] == ["Hello", "Hi", "More"]
    await store.close()
    assert administer_sqlite({"path": released}).check() == []


async def test_a_store_of_before_keeps_the_states_of_its_triggers(released: Path) -> None:
    with closing(sqlite3.connect(released)) as db, db:
        db.execute("INSERT INTO triggers VALUES (900, '/p', 'first'), (901, '/p', 'second')")
        states = "INSERT INTO trigger_states VALUES (900, 'a', '1'), (900, 'long', ?), (901, 'a', '2')"
        db.execute(states, (f'"{"x" * 20_000}"',))
    store = open_sqlite({"path": released})
    await store.save_trigger_state("/p", "first", {"a": 3, "b": 4}, merge=True)
    assert await store.trigger_state("/p", "first") == {"a": 3, "b": 4, "long": "x" * 20_000}
    assert await store.trigger_state("/p", "second") == {"a": 2}
    await store.close()
    assert administer_sqlite({"path": released}).check() == []


async def test_a_wrong_order_is_a_fault_that_a_repair_mends(store: SqliteStore, path: Path) -> None:
    for number in range(3):
        await store.create(SessionRecord(f"s{number}"))
    with closing(sqlite3.connect(path)) as db, db:
        ordering.restore_order(db)
        db.execute("UPDATE sessions SET listed = 7 WHERE session_id = 's2'")
    administration = administer_sqlite({"path": path})
    [fault] = administration.check()
    assert (fault.where, "--repair" in fault.remedy) == ("sessions", True)
    assert administration.check(repair=True) == []
    assert [each.session_id for each in await store.sessions(limit=2)] == ["s2", "s1"]


async def test_a_list_that_meets_a_wrong_time_is_in_order(store: SqliteStore, path: Path) -> None:
    for number in range(3):
        await store.create(SessionRecord(f"s{number}"))
    with closing(sqlite3.connect(path)) as db, db:
        ordering.restore_order(db)
        db.execute("UPDATE sessions SET listed = 7 WHERE session_id = 's2'")
    assert [each.session_id for each in await store.sessions(limit=3)] == ["s2", "s1", "s0"]


async def test_a_salvaged_store_is_in_order(store: SqliteStore, path: Path) -> None:
    for number in range(3):
        await store.create(SessionRecord(f"s{number}"))
    await store.append("s0", TURN, at=0)
    await store.close()
    salvaged = open_sqlite({"path": administer_sqlite({"path": path}).salvage().path})
    await _check_lists(salvaged)
    assert (await salvaged.sessions(limit=1))[0].session_id == "s0"
    await salvaged.close()
    assert administer_sqlite({"path": salvaged.path}).check() == []
