"""Test deliveries and events beyond the contract of every store."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import DeliveryConflict, StaleEpoch
from amplifier_core.events import SessionEvent
from amplifier_core.storage import Admission, Delivery, Purged
from amplifier_core.testing import MemoryStore
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import inbox, open_sqlite, purging
from amplifier_storage_sqlite.opening import connect
from amplifier_storage_sqlite.values import Column, micros

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core.storage import DurableStore, Overlap
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Steps


LATER = datetime(2100, 1, 1, tzinfo=UTC)


async def test_the_sequence_never_goes_back(path: Path, store: SqliteStore) -> None:
    for name in ("a", "b"):
        await store.emit(SessionEvent(name, {}))
    assert await store.purge(before=LATER) == Purged(events=2)
    assert (await store.events(), await store.last_sequence()) == ([], 2)
    await store.close()
    again = open_sqlite({"path": path})
    assert (await again.events(), await again.last_sequence()) == ([], 2)
    assert (await again.emit(SessionEvent("c", {}))).sequence == 3
    await again.close()


async def test_a_delivery_that_succeeds_in_the_end_has_no_reason_left(store: SqliteStore) -> None:
    await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    for reason in ("no network", None):
        delivery = await store.claim("/p", "queue", owner="me", lease=60, session_id="s")
        assert delivery is not None
        if reason:
            await store.nack(delivery, reason=reason, available_at=datetime.now(UTC))
        else:
            await store.commit(delivery)
    [done] = await store.deliveries()
    assert (done.state, done.attempts, done.reason) == ("done", 2, None)


def _copy_deliveries(path: Path, count: int, state: str) -> None:
    """Add `count` copies, in another state, of the one delivery that there is."""
    columns = "project, queue, trigger, event, attempts, epoch, available_at, created, updated"
    with closing(connect(path, 1)) as db:
        db.execute(
            f"WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < {count}) "
            f"INSERT INTO deliveries (delivery_id, state, {columns}) "
            f"SELECT '{state}' || n, '{state}', {columns} FROM deliveries, n"
        )


async def test_a_claim_costs_the_same_however_many_are_done(path: Path, store: SqliteStore, steps: Steps) -> None:
    await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    now = micros(LATER)
    values: dict[str, Column] = {"project": "/p", "queue": "queue", "owner": "me", "session_id": "s"}
    values |= {"now": now, "lease_until": 0}
    alone = steps(lambda db: inbox.claim(db, values))
    _copy_deliveries(path, 5000, "done")
    assert steps(lambda db: inbox.claim(db, values)) < alone + 50


async def test_a_claim_looks_past_those_that_wait_for_one_of_their_key(
    path: Path, store: SqliteStore, steps: Steps
) -> None:
    for _ in range(2):
        await store.enqueue("/p", "queue", "t", TriggerEvent(TriggerType.CUSTOM, "test"), admission=Admission("key"))
    await store.claim("/p", "queue", owner="me", lease=60, session_id="s", now=LATER)
    values: dict[str, Column] = {"project": "/p", "queue": "queue", "owner": "me", "session_id": "s"}
    values |= {"now": micros(LATER), "lease_until": 0}
    assert steps(lambda db: inbox.claim(db, values)) > 0
    alone = steps(lambda db: inbox.claim(db, values))
    with closing(connect(path, 1)) as db:
        names = "project, queue, trigger, event, state, attempts, epoch, available_at, created, updated, key, waits"
        db.execute(
            f"WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 5000) "
            f"INSERT INTO deliveries (delivery_id, {names}) SELECT 'd' || n, {names} FROM deliveries, n WHERE waits = 1"
        )
    assert steps(lambda db: inbox.claim(db, values)) < alone + 50


async def test_what_waits_is_found_without_a_look_at_what_is_done(path: Path, store: SqliteStore, steps: Steps) -> None:
    event = TriggerEvent(TriggerType.CUSTOM, "test", cause="c")
    await store.enqueue("/p", "queue", "t", event)
    wanted: list[dict[str, Column]] = [{"event_id": event.event_id}, {"cause": "c"}, {"session_id": "s"}]
    wanted += [{"project": "/p", "state": state} for state in ("pending", "claimed", "dead", "skipped")]
    _copy_deliveries(path, 5000, "done")
    for each in wanted:
        assert steps(lambda db, each=each: inbox.deliveries(db, each, 5)) < 500, each  # type: ignore[misc]
    assert steps(lambda db: inbox.delivery_counts(db, {})) < 5000 * 6, (
        "a GROUP BY over what is done takes four times that"
    )


@pytest.mark.parametrize("seed", range(12))
async def test_deliveries_fare_as_in_the_store_in_memory(seed: int, store: SqliteStore) -> None:
    chosen, now = random.Random(seed), LATER
    stores: tuple[DurableStore, DurableStore] = store, MemoryStore()
    pairs: list[tuple[Delivery, Delivery]] = []
    for number in range(80):
        now += timedelta(seconds=chosen.choice((0, 1, 5, 70)))
        step = _step(chosen, number, now, pairs)
        results = [await step(each, side) for side, each in enumerate(stores)]
        if isinstance(results[0], Delivery):
            pairs.append((results[0], results[1]))
        assert [_told(results[0]), await _all_of(store)] == [_told(results[1]), await _all_of(stores[1])], number
        assert await store.delivery_counts() == await stores[1].delivery_counts()


def _step(
    chosen: random.Random, number: int, now: datetime, pairs: list[tuple[Delivery, Delivery]]
) -> Callable[[DurableStore, int], Awaitable[Any]]:
    """Return something to do to both stores."""
    key, settle_key = chosen.choice((None, "a", "a", "b")), chosen.choice((None, None, "s"))
    within = chosen.choice((None, 8.0))
    overlap: Overlap = chosen.choice(("queue", "queue", "skip", "replace"))
    admission = Admission(key, overlap, chosen.randrange(2), settle_key, 6.0, within)
    event = TriggerEvent(TriggerType.CUSTOM, "test", now, event_id=f"e{number}", dedupe_key=chosen.choice((None, "d")))
    refused = chosen.choice((None, None, None, "too deep"))
    kinds = [
        "enqueue",
        "enqueue",
        "enqueue",
        "claim",
        "claim",
        "commit",
        "nack",
        "dead_letter",
        "redeliver",
        "drop",
        "release",
    ]
    kind, pair = chosen.choice(kinds[: 5 if not pairs else None]), chosen.choice(pairs or [None])

    async def do(store: DurableStore, side: int) -> Any:
        try:
            match kind:
                case "enqueue":
                    return await store.enqueue("/p", "l", "t", event, refused=refused, admission=admission, now=now)
                case "claim":
                    return await store.claim("/p", "l", owner="me", lease=60, session_id=f"s{number}", now=now)
                case "release":
                    return await store.release("/p")
            assert pair is not None
            mine = pair[side]
            match kind:
                case "commit":
                    return await store.commit(mine)
                case "nack":
                    return await store.nack(mine, reason="r", available_at=now + timedelta(seconds=5))
                case "dead_letter":
                    return await store.dead_letter(mine, reason="b")
                case "redeliver":
                    return await store.redeliver(mine.delivery_id, now=now)
            return await store.drop(mine.delivery_id, reason="d")
        except (StaleEpoch, DeliveryConflict) as error:
            return type(error)

    return do


def _told(result: Any) -> Any:
    if isinstance(result, Delivery):  # ids are of each store, `updated` is of its clock
        return replace(result, delivery_id="", updated=LATER, available_at=max(result.available_at, LATER))
    return result


async def _all_of(store: DurableStore) -> list[Any]:
    return [_told(each) for each in await store.deliveries()]


async def test_a_lease_may_be_a_fraction_of_a_second(store: SqliteStore) -> None:
    await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    now = LATER
    await store.claim("/p", "queue", owner="me", lease=0.25, session_id="s", now=now)
    for later, epoch in ((0.2, None), (0.25, 2)):
        then = now + timedelta(seconds=later)
        claimed = await store.claim("/p", "queue", owner="me", lease=0.25, session_id="s", now=then)
        assert (claimed.epoch if claimed else None) == epoch


def _trim(db: sqlite3.Connection, event_bytes: int) -> None:
    values = {"before": 0, "first": purging.find_first(db, 0, event_bytes), "old": 0}
    for table in ("deliveries", "received", "events"):
        purging.purge_some(db, table, values)


async def test_a_trim_looks_at_what_it_forgets_alone(path: Path, store: SqliteStore, steps: Steps) -> None:
    await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    await store.emit(SessionEvent("first", {}))
    alone = steps(lambda db: _trim(db, 0))
    _copy_deliveries(path, 5000, "done")
    await asyncio.gather(*(store.emit(SessionEvent("e", {})) for _ in range(500)))
    assert steps(lambda db: _trim(db, 0)) < alone + 50
    assert steps(lambda db: _trim(db, 20)) < alone + 500
    assert await store.purge(before=LATER) == Purged(deliveries=5000, events=501)


async def test_another_process_writes_between_the_steps_of_a_purge(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "STEP", 10)
    await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    _copy_deliveries(path, 35, "done")
    await asyncio.gather(*(store.emit(SessionEvent("e", {})) for _ in range(25)))
    found: list[int] = []

    def write() -> None:
        with closing(connect(path, 0.0)) as other:
            found.append(other.execute("UPDATE deliveries SET priority = 1").rowcount)

    store._writer.committed = write
    purged = await store.purge(before=LATER)
    await asyncio.to_thread(store._writer.close)  # and so all commits are told
    assert purged == Purged(deliveries=35, events=25)
    assert found[-8:] == [26, 16, 6, 1, 1, 1, 1, 1]  # one waits, and stays; then come received ids and events


@pytest.mark.parametrize("seed", range(5))
async def test_the_log_is_shortened_as_that_of_the_store_in_memory(seed: int, store: SqliteStore) -> None:
    chosen, model = random.Random(seed), MemoryStore()
    for _ in range(30):
        data = {"ü\udcff\0"[: chosen.randrange(4)]: ["é" * chosen.randrange(40), "\N{PARTY POPPER}\n"]}
        event = SessionEvent("e", data, timestamp=LATER + timedelta(hours=chosen.randrange(48)))
        assert await store.emit(event) == await model.emit(event)
    for hours in range(0, 60, 6):
        before, size = LATER + timedelta(hours=hours), chosen.randrange(2000)
        purged = await store.purge(before=before, event_bytes=size)
        assert purged == await model.purge(before=before, event_bytes=size)
        assert await store.events() == await model.events()
    assert await store.last_sequence() == await model.last_sequence() == 30


async def test_a_store_that_is_trimmed_takes_no_more_room_than_it_once_did(path: Path, store: SqliteStore) -> None:
    sizes = []
    for _ in range(20):
        await _handle(store, 20)
        sizes.append(path.stat().st_size + path.with_name("store.db-wal").stat().st_size)
        assert await store.purge(before=LATER) == Purged(deliveries=20, events=60)
    await store.close()
    assert max(sizes) < 8_000_000, "the write-ahead log is begun anew at 4 MB and 32 writes"
    assert path.stat().st_size < 2 * _bytes_of(20), "what was freed is used again"


async def _handle(store: SqliteStore, count: int) -> None:
    """Offer so many events of 10 KB, and handle each of them with three of 5 KB that come of it."""
    for number in range(count):
        data = {"n": number, "text": "x" * 10_000}
        await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test", data=data))
        delivery = await store.claim("/p", "queue", owner="me", lease=60, session_id="s")
        assert delivery is not None
        emits = [SessionEvent("e", {"text": "y" * 5_000}) for _ in range(2)]
        await store.commit(delivery, emits=emits)
        await store.emit(SessionEvent("e", {"text": "y" * 5_000}))


def _bytes_of(count: int) -> int:
    return count * (10_000 + 3 * 5_000)


@pytest.mark.parametrize("make", ["sqlite", "memory"])
async def test_a_postponed_delivery_is_made_due_and_no_other(store: SqliteStore, make: str) -> None:
    each: SqliteStore | MemoryStore = store if make == "sqlite" else MemoryStore()
    await each.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
    delivery = await each.claim("/p", "queue", owner="me", lease=60, session_id="s")
    assert delivery is not None
    assert not await each.make_due(delivery.delivery_id), "it is claimed"
    await each.nack(delivery, reason="waits", available_at=LATER, counted=False)
    assert await each.claim("/p", "queue", owner="me", lease=60, session_id="s") is None
    assert (await each.make_due(delivery.delivery_id), await each.make_due("nobody")) == (True, False)
    again = await each.claim("/p", "queue", owner="me", lease=60, session_id="s")
    assert again is not None
    assert (again.delivery_id, again.attempts) == (delivery.delivery_id, 1)


async def test_the_ids_of_deliveries_of_one_hour_lie_together(store: SqliteStore) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    days = [at + timedelta(days=day, minutes=minute) for day in range(3) for minute in range(5)]
    stored = [await store.enqueue("/p", "q", "t", TriggerEvent(TriggerType.MANUAL, "t"), now=now) for now in days]
    ids = [each.delivery_id for each in stored if each is not None]
    assert len(set(ids)) == len({each[4:] for each in ids}) == 15
    assert len({each[:4] for each in ids}) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="no /proc/self/io counts what is read")
async def test_a_long_value_of_a_state_is_not_read_for_its_other_keys(store: SqliteStore) -> None:
    await store.save_trigger_state("/p", "trigger", {"files": "x" * 9_000_000, "last": 0})
    before = _bytes_read()
    for number in range(3):
        event = TriggerEvent(TriggerType.CUSTOM, "test", state_changes={"last": number, f"new-{number}": 1})
        await store.enqueue("/p", "queue", "trigger", event)
    assert _bytes_read() - before < 1_000_000
    state = await store.trigger_state("/p", "trigger")
    assert (len(state.pop("files")), state) == (9_000_000, {"last": 2, "new-0": 1, "new-1": 1, "new-2": 1})


def _bytes_read() -> int:
    """Return how many bytes this process has read."""
    return int(Path("/proc/self/io").read_text().split()[1])
