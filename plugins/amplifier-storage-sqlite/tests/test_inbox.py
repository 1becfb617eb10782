"""Deliveries and events beyond what every store must do."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from amplifier_core.events import SessionEvent
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import inbox
from amplifier_storage_sqlite.opening import connect
from amplifier_storage_sqlite.values import Column, micros

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Steps


async def test_the_sequence_never_goes_back(path: Path, store: SqliteStore) -> None:
    for name in ("a", "b"):
        await store.emit(SessionEvent(name, {}))
    db = sqlite3.connect(path)
    db.execute("DELETE FROM events")
    db.commit()
    db.close()
    assert await store.last_sequence() == 2
    assert (await store.emit(SessionEvent("c", {}))).sequence == 3


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


async def test_a_claim_costs_the_same_however_many_are_done(path: Path, store: SqliteStore, steps: Steps) -> None:
    await store.offer("/p", "lane", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    now = micros(datetime(2100, 1, 1, tzinfo=UTC))
    values: dict[str, Column] = {"project": "/p", "lane": "lane", "owner": "me", "session_id": "s"}
    values |= {"now": now, "lease_until": 0}
    alone = steps(lambda db: inbox.claim(db, values))
    db = connect(path, 1)
    columns = "project, lane, trigger, event, attempts, epoch, available_at, created, updated"
    db.execute(
        f"WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 5000) "
        f"INSERT INTO deliveries (delivery_id, state, {columns}) SELECT n, 'done', {columns} FROM deliveries, n"
    )
    db.close()
    assert steps(lambda db: inbox.claim(db, values)) < alone + 50


async def test_a_lease_may_be_a_fraction_of_a_second(store: SqliteStore) -> None:
    await store.offer("/p", "lane", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    now = datetime(2100, 1, 1, tzinfo=UTC)
    await store.claim("/p", "lane", owner="me", lease=0.25, session_id="s", now=now)
    for later, epoch in ((0.2, None), (0.25, 2)):
        then = now + timedelta(seconds=later)
        claimed = await store.claim("/p", "lane", owner="me", lease=0.25, session_id="s", now=then)
        assert (claimed.epoch if claimed else None) == epoch
