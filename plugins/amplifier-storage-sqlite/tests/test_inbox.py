"""Deliveries and events beyond what every store must do."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from amplifier_core.events import SessionEvent
from amplifier_core.storage import Trimmed
from amplifier_core.testing import MemoryStore
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import inbox, open_sqlite
from amplifier_storage_sqlite.opening import connect
from amplifier_storage_sqlite.values import Column, micros

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Steps


LATER = datetime(2100, 1, 1, tzinfo=UTC)


async def test_the_sequence_never_goes_back(path: Path, store: SqliteStore) -> None:
    for name in ("a", "b"):
        await store.emit(SessionEvent(name, {}))
    assert await store.trim(before=LATER) == Trimmed(events=2)
    assert (await store.events(), await store.last_sequence()) == ([], 2)
    await store.close()
    again = open_sqlite({"path": path})
    assert (await again.events(), await again.last_sequence()) == ([], 2)
    assert (await again.emit(SessionEvent("c", {}))).sequence == 3
    await again.close()


async def test_a_delivery_that_succeeds_in_the_end_has_no_reason_left(store: SqliteStore) -> None:
    await store.offer("/p", "lane", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    for reason in ("no network", None):
        delivery = await store.claim("/p", "lane", owner="me", lease=60, session_id="s")
        assert delivery is not None
        if reason:
            await store.retry(delivery, reason=reason, available_at=datetime.now(UTC))
        else:
            await store.commit(delivery)
    [done] = await store.deliveries()
    assert (done.state, done.attempts, done.reason) == ("done", 2, None)


def _copy_deliveries(path: Path, count: int, state: str) -> None:
    """Add `count` copies, in another state, of the one delivery that there is."""
    columns = "project, lane, trigger, event, attempts, epoch, available_at, created, updated"
    with closing(connect(path, 1)) as db:
        db.execute(
            f"WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < {count}) "
            f"INSERT INTO deliveries (delivery_id, state, {columns}) "
            f"SELECT '{state}' || n, '{state}', {columns} FROM deliveries, n"
        )


async def test_a_claim_costs_the_same_however_many_are_done(path: Path, store: SqliteStore, steps: Steps) -> None:
    await store.offer("/p", "lane", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    now = micros(LATER)
    values: dict[str, Column] = {"project": "/p", "lane": "lane", "owner": "me", "session_id": "s"}
    values |= {"now": now, "lease_until": 0}
    alone = steps(lambda db: inbox.claim(db, values))
    _copy_deliveries(path, 5000, "done")
    assert steps(lambda db: inbox.claim(db, values)) < alone + 50


async def test_a_lease_may_be_a_fraction_of_a_second(store: SqliteStore) -> None:
    await store.offer("/p", "lane", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    now = LATER
    await store.claim("/p", "lane", owner="me", lease=0.25, session_id="s", now=now)
    for later, epoch in ((0.2, None), (0.25, 2)):
        then = now + timedelta(seconds=later)
        claimed = await store.claim("/p", "lane", owner="me", lease=0.25, session_id="s", now=then)
        assert (claimed.epoch if claimed else None) == epoch


async def test_a_trim_looks_at_what_it_forgets_alone(path: Path, store: SqliteStore, steps: Steps) -> None:
    await store.offer("/p", "lane", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    await store.emit(SessionEvent("first", {}))
    alone = steps(lambda db: inbox.trim(db, 0, 0))
    _copy_deliveries(path, 5000, "done")
    await asyncio.gather(*(store.emit(SessionEvent("e", {})) for _ in range(500)))
    assert steps(lambda db: inbox.trim(db, 0, 0)) < alone + 50
    assert steps(lambda db: inbox.trim(db, 0, 20)) < alone + 500
    assert await store.trim(before=LATER) == Trimmed(deliveries=5000, events=501)


@pytest.mark.parametrize("seed", range(5))
async def test_the_log_is_shortened_as_that_of_the_store_in_memory(seed: int, store: SqliteStore) -> None:
    chosen, model = random.Random(seed), MemoryStore()
    for _ in range(30):
        data = {"ü\udcff\0"[: chosen.randrange(4)]: ["é" * chosen.randrange(40), "\N{PARTY POPPER}\n"]}
        event = SessionEvent("e", data, timestamp=LATER + timedelta(hours=chosen.randrange(48)))
        assert await store.emit(event) == await model.emit(event)
    for hours in range(0, 60, 6):
        before, size = LATER + timedelta(hours=hours), chosen.randrange(2000)
        trimmed = await store.trim(before=before, event_bytes=size)
        assert trimmed == await model.trim(before=before, event_bytes=size)
        assert await store.events() == await model.events()
    assert await store.last_sequence() == await model.last_sequence() == 30


async def test_a_store_that_is_trimmed_takes_no_more_room_than_it_once_did(path: Path, store: SqliteStore) -> None:
    sizes = []
    for _ in range(20):
        await _handle(store, 20)
        sizes.append(path.stat().st_size + path.with_name("store.db-wal").stat().st_size)
        assert await store.trim(before=LATER) == Trimmed(deliveries=20, events=60)
    await store.close()
    assert max(sizes) < 6_000_000, "the write-ahead log is begun anew at 4 MB"
    assert path.stat().st_size < 2 * _bytes_of(20), "what was freed is used again"


async def _handle(store: SqliteStore, count: int) -> None:
    """Offer so many events of 10 KB, and handle each of them with three of 5 KB that come of it."""
    for number in range(count):
        data = {"n": number, "text": "x" * 10_000}
        await store.offer("/p", "lane", "trigger", TriggerEvent(TriggerType.CUSTOM, "test", data=data))
        delivery = await store.claim("/p", "lane", owner="me", lease=60, session_id="s")
        assert delivery is not None
        emits = [SessionEvent("e", {"text": "y" * 5_000}) for _ in range(2)]
        await store.commit(delivery, emits=emits)
        await store.emit(SessionEvent("e", {"text": "y" * 5_000}))


def _bytes_of(count: int) -> int:
    return count * (10_000 + 3 * 5_000)
