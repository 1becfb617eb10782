"""Test the events of other sites beyond the contract of every store."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core.events import SessionEvent
from amplifier_core.shared_stores import ReceivingStore
from amplifier_storage_sqlite import open_sqlite, purging

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start, Unpack

WRITTEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def released(unpack: Unpack) -> Path:
    """A store of schema 12: a session, three events, and a delivery with the state of its trigger."""
    return unpack(12)


async def test_a_store_of_before_keeps_its_log_and_receives(released: Path) -> None:
    with closing(sqlite3.connect(released)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (12,)
    store = open_sqlite({"path": released})
    assert isinstance(store, ReceivingStore)
    logged = [
        SessionEvent(f"work:{n}", {"n": n}, "parent", WRITTEN, f"logged-{n}", sequence=n + 1, project="/projects/app")
        for n in range(3)
    ]
    assert await store.events() == logged
    assert (await store.get("parent")).name == "Größe"
    assert await store.trigger_state("/projects/app", "t") == {"cursor": 7}
    received = await store.receive(SessionEvent("work:9", {}, event_id="logged-0"), "berlin")
    assert received is not None
    assert received.sequence == 4
    assert await store.receive(SessionEvent("work:9", {}, event_id="logged-0"), "berlin") is None
    await store.close()


async def test_an_id_is_forgotten_with_its_event_and_30_days_after_it_came(path: Path, store: SqliteStore) -> None:
    old = datetime.now(UTC) - purging.REMEMBERED_FOR - timedelta(hours=1)
    for number in range(3):
        await store.receive(SessionEvent("e", {}, event_id=str(number), timestamp=old), "berlin")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE received SET at = ? WHERE event_id != '2'", (int(old.timestamp() * 1e6),))
    await store.purge(before=old)  # the events stay
    assert await store.receive(SessionEvent("e", {}, event_id="0", timestamp=old), "berlin") is None
    await store.purge(before=datetime.now(UTC))
    known = [await store.receive(SessionEvent("e", {}, event_id=str(n)), "berlin") is None for n in range(3)]
    assert known == [False, False, True]


@pytest.mark.parametrize("seed", range(2))
async def test_an_event_and_its_id_are_stored_together_whenever_the_process_is_killed(
    seed: int, path: Path, start: Start
) -> None:
    process = start(
        """
from amplifier_core.events import SessionEvent

async def main():
    store = open_sqlite({"path": sys.argv[1]})
    for number in range(100_000):
        await store.receive(SessionEvent("e", {}, event_id=str(number)), "berlin")
        say(number)

asyncio.run(main())
""",
        path,
    )
    assert process.stdout is not None
    for _ in range(random.Random(seed).randrange(5, 60)):
        said = process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    store = open_sqlite({"path": path})
    logged = [event.event_id for event in await store.events(limit=100_000)]
    with closing(sqlite3.connect(path)) as db:
        assert {each for (each,) in db.execute("SELECT event_id FROM received")} == set(logged)
    assert logged == [str(number) for number in range(len(logged))]
    assert len(logged) > int(said)
    await store.close()


async def test_a_salvaged_store_knows_what_came(path: Path, store: SqliteStore) -> None:
    for number in range(3):
        await store.receive(SessionEvent("e", {}, event_id=str(number)), "berlin")
    administration = store.administration
    await store.close()
    result = administration.salvage()
    assert result.lost == ()
    again = open_sqlite({"path": result.path})
    assert [await again.receive(SessionEvent("e", {}, event_id=str(n)), "berlin") for n in range(3)] == [None] * 3
    assert len(await again.events()) == 3
    await again.close()


async def test_a_purge_looks_once_at_the_ids_that_stay(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    purge_some = purging.purge_some

    def count(db: sqlite3.Connection, table: str, values: dict[str, int]) -> int:
        looks.append(table)
        return purge_some(db, table, values)

    monkeypatch.setattr(purging, "purge_some", count)
    monkeypatch.setattr(purging, "STEP", 2)
    for number in range(5):
        await store.receive(SessionEvent("e", {}, event_id=str(number)), "berlin")
    purged = await store.purge(before=datetime.now(UTC) + timedelta(days=1))
    assert (purged.events, looks) == (5, ["deliveries", "received", "events", "events", "events"])
