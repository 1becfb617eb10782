"""The kept counts of finished deliveries are what a count of the rows finds, whatever happens to deliveries."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import administer_sqlite, open_sqlite, schema

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Unpack

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROJECT = "/projects/app"


async def _counted(store: SqliteStore) -> dict[tuple[str, str], int]:
    """Return the counts of the store by queue and state; they are those of its rows."""
    found = Counter[tuple[str, str]]()
    for each in await store.delivery_counts():
        found.update({(each.queue, state): count for state, count in each.counts.items()})
    with closing(sqlite3.connect(store.path)) as db:
        rows = db.execute("SELECT queue, state, count(*) FROM deliveries NOT INDEXED GROUP BY queue, state").fetchall()
    assert found == {(queue, state): count for queue, state, count in rows}
    return dict(found)


async def test_counts_follow_every_change_of_a_delivery(store: SqliteStore) -> None:
    chance = random.Random(7)
    for number in range(300):
        at, queue = AT + timedelta(seconds=number), chance.choice("ab")
        event = TriggerEvent(TriggerType.MANUAL, "t", at, dedupe_key=str(chance.randrange(200)))
        refused = "the queue is full" if chance.random() < 0.1 else None
        await store.enqueue(PROJECT, queue, f"{queue}/t#{number % 2}", event, now=at, refused=refused)
        claimed = await store.claim(PROJECT, queue, owner="me", lease=60, session_id=f"s{number}", now=at)
        if claimed is not None:
            end = chance.choice(("commit", "dead", "nack", "drop"))
            if end == "commit":
                await store.commit(claimed)
            elif end == "nack":
                await store.nack(claimed, reason="later", available_at=at + timedelta(seconds=30))
            else:
                await store.dead_letter(claimed, reason="no")
            if end == "drop":
                await store.drop(claimed.delivery_id, reason="by hand")
        if dead := chance.random() < 0.2 and await store.deliveries(state="dead", limit=1):
            await store.redeliver(dead[0].delivery_id, now=at)
        if number % 100 == 99:
            await _counted(store)
    assert {state for _, state in await _counted(store)} >= {"done", "dead", "refused", "skipped"}
    await store.purge(before=AT + timedelta(days=9999))
    assert {state for _, state in await _counted(store)} <= {"dead", "pending"}


async def test_an_event_that_is_known_is_not_counted(store: SqliteStore) -> None:
    for _ in range(2):
        event = TriggerEvent(TriggerType.MANUAL, "t", dedupe_key="once")
        await store.enqueue(PROJECT, "a", "a/t#1", event, refused="full")
    assert await _counted(store) == {("a", "refused"): 1}


@pytest.fixture
def released(unpack: Unpack) -> Path:
    """A store of schema 15: a session with a fork, indexed messages, and deliveries in five states."""
    return unpack(15)


async def test_a_store_of_before_gets_its_counts(released: Path) -> None:
    with closing(sqlite3.connect(released)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (15,)
    store = open_sqlite({"path": released})
    counts = await _counted(store)
    assert counts == {
        **{("bundle/a", state): 1 for state in ("dead", "pending", "refused", "skipped")},
        ("bundle/a", "done"): 2,
        **{("bundle/b", state): 1 for state in ("dead", "done", "pending")},
    }
    [dead] = await store.deliveries(queue="bundle/b", state="dead")
    await store.drop(dead.delivery_id, reason="by hand")
    assert (await _counted(store))["bundle/b", "skipped"] == 1
    await store.close()


async def test_a_migrated_store_has_the_tables_of_a_new_one(released: Path) -> None:
    new = released.with_name("new.db")
    shapes = []
    for path in (released, new):
        await open_sqlite({"path": path}).close()
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
            shapes.append(dict(db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")))
    assert shapes[0] == shapes[1]


async def test_wrong_counts_are_a_fault_that_a_repair_mends(store: SqliteStore) -> None:
    for number in range(3):
        await store.enqueue(PROJECT, "a", "a/t#1", TriggerEvent(TriggerType.MANUAL, f"{number}"), refused="full")
    administration = administer_sqlite({"path": store.path})
    assert administration.check() == []
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE delivery_counts SET count = 7")
    [fault] = administration.check()
    assert (fault.where, "--repair" in fault.remedy) == ("deliveries", True)
    assert administration.check(repair=True) == []
    assert await _counted(store) == {("a", "refused"): 3}


async def test_counts_of_deliveries_that_are_not_there_are_made_anew(store: SqliteStore) -> None:
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("INSERT INTO delivery_counts VALUES ('p', 'q', 't', 'done', 5)")
    assert await _counted(store) == {}
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("SELECT count(*) FROM delivery_counts").fetchone() == (0,)


async def test_a_salvaged_store_has_counts(store: SqliteStore) -> None:
    for number in range(3):
        await store.enqueue(PROJECT, "a", "a/t#1", TriggerEvent(TriggerType.MANUAL, f"{number}"), refused="full")
    await store.close()
    salvaged = open_sqlite({"path": administer_sqlite({"path": store.path}).salvage().path})
    assert await _counted(salvaged) == {("a", "refused"): 3}
    await salvaged.close()
