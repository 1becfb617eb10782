"""Bound the size of a store, back it up every day, and notice damage while background sessions run."""

from __future__ import annotations

import asyncio
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from amplifier_core import SessionEvent, SessionRecord, TriggerEvent, TriggerType
from amplifier_core.testing import MemoryStore, VirtualClock
from amplifier_foundation.background.retention import PURGE_EVERY, Retention, bound_size, purging
from amplifier_foundation.background.store_upkeep import KEPT, LOOK_EVERY, back_up_if_due, looking_after
from amplifier_storage_sqlite import open_sqlite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_storage_sqlite.store import SqliteStore

LATER = datetime.now(UTC) + timedelta(days=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "amplifier.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = open_sqlite({"path": path})
    yield store
    await store.close()


async def _fill(store: SqliteStore) -> None:
    """Store 30 sessions of events, one of a person, finished and waiting deliveries, and events: 50 kB each."""
    for number in range(30):
        session = SessionRecord(f"s{number}", name="queue", event_id="e", status="completed")
        await store.create(session)
        await store.append(session.session_id, [{"content": "x" * 50_000}], at=0)
        event = TriggerEvent(TriggerType.CUSTOM, "test", data={"text": "y" * 50_000})
        await store.enqueue("/p", "queue", "t", event, refused="no" if number else None)
        await store.emit(SessionEvent("big", {"text": "z" * 50_000}))
    await store.create(SessionRecord("person", status="completed"))


async def test_a_store_within_its_bound_forgets_nothing(store: SqliteStore) -> None:
    await _fill(store)
    await bound_size(store, LATER, Retention(max_size=100_000_000))
    assert (len(await store.sessions()), len(await store.deliveries()), len(await store.events())) == (31, 30, 30)


async def test_a_store_above_its_bound_forgets_the_oldest_first_and_shrinks(store: SqliteStore, path: Path) -> None:
    await _fill(store)
    await bound_size(store, LATER, Retention(keep=2, max_size=2_000_000))
    assert [each.state for each in await store.deliveries()] == ["pending"]
    assert await store.events() == []
    ids = {record.session_id for record in await store.sessions()}
    assert len(ids) == 31, "deliveries and events were enough"
    await bound_size(store, LATER, Retention(keep=2, max_size=1_000_000))
    ids = {record.session_id for record in await store.sessions()}
    assert ids == {"person", "s28", "s29"}, "AT_ONCE sessions go in one step"
    assert path.stat().st_size < 1_000_000


async def test_a_bound_that_cannot_be_kept_is_said(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    await _fill(store)
    caplog.set_level("WARNING")
    await bound_size(store, LATER, Retention(keep=30, max_size=500_000))
    assert len(await store.sessions()) == 31
    assert "larger than retention.max_size (500,000 bytes), and the rest is needed" in caplog.text
    assert "amplifier store info" in caplog.text


async def test_a_store_full_of_deliveries_of_the_last_day_keeps_its_sessions_and_says_why(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    await _fill(store)
    caplog.set_level("WARNING")
    await bound_size(store, datetime.now(UTC), Retention(keep=2, max_size=1_000_000))
    assert len(await store.sessions()) == 31
    uses = {each.kind: each.bytes for each in store.administration.info().uses}
    largest = f"deliveries {uses['deliveries']:,} bytes (unfinished ones, dead letters, those finished within a day)"
    assert largest in caplog.text
    assert "with: amplifier session prune --all --older-than 1h" in caplog.text


async def test_what_is_written_after_the_last_look_is_no_reason_to_warn(
    store: SqliteStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(store)
    caplog.set_level("WARNING")
    loop, read = asyncio.get_running_loop(), store.administration.size

    def read_and_write() -> tuple[int, int]:
        size, free = read()
        if size - free <= 1_000_000:
            writing = store.append("person", [{"content": "x" * 2_000_000}], at=0)
            asyncio.run_coroutine_threadsafe(writing, loop).result()
        return size, free

    monkeypatch.setattr(store.administration, "size", read_and_write)
    await bound_size(store, LATER, Retention(max_size=1_000_000))
    assert read()[0] > 1_000_000
    assert caplog.text == ""


async def test_a_storage_that_cannot_tell_its_size_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    await bound_size(MemoryStore(), LATER, Retention())
    assert caplog.text == ""
    async with purging(MemoryStore(), VirtualClock(LATER), Retention(max_size=1)):
        await asyncio.sleep(0)
    await bound_size(MemoryStore(), LATER, Retention(max_size=1))
    assert "this storage does not tell its size" in caplog.text


async def test_a_store_is_backed_up_once_a_day_and_seven_are_kept(store: SqliteStore) -> None:
    now = datetime.now(UTC)
    for day in range(KEPT + 3):
        for hour in (0, 1, 23):
            back_up_if_due(store.administration, now + timedelta(days=day, hours=hour))
        newest = store.administration.backups()[0]
        made = (now + timedelta(days=day)).timestamp()
        os.utime(newest, (made, made))
    assert len(store.administration.backups()) == KEPT


async def test_a_clock_far_ahead_forgets_nothing_within_an_hour_and_never_before_a_backup(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    await _fill(store)
    clock = VirtualClock(datetime.now(UTC) + timedelta(days=200))
    async with purging(store, clock, Retention(timedelta(days=90))):
        await clock.until_sleeping()
        assert (len(await store.sessions()), len(await store.deliveries())) == (31, 30)
        assert len(store.administration.backups()) == 1
        assert "nothing is forgotten within this hour: the last change of the store was 200 days ago" in caplog.text
        await clock.advance(PURGE_EVERY)
        await clock.until_sleeping()
        assert [each.session_id for each in await store.sessions()] == ["person"]


async def test_a_store_without_room_for_its_backup_forgets_nothing_within_an_hour(
    store: SqliteStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    await _fill(store)
    clock = VirtualClock(datetime.now(UTC) + timedelta(days=2))
    async with purging(store, clock, Retention(timedelta(days=1))):
        await clock.until_sleeping()
        assert len(await store.sessions()) == 31
        assert "the disk has no room" in caplog.text
        await clock.advance(PURGE_EVERY)
        await clock.until_sleeping()
        assert [each.session_id for each in await store.sessions()] == ["person"]


async def _until(found: str, clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(500):
        await clock.advance(LOOK_EVERY)
        await asyncio.sleep(0.01)  # the look is in a thread
        if found in caplog.text:
            return
    pytest.fail(f"{found!r} was not logged: {caplog.text}")


@pytest.mark.parametrize("fault", ["removed", "replaced", "damaged"])
async def test_a_store_that_is_lost_while_it_is_used_is_noticed(
    fault: str, store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create(SessionRecord("s"))
    store.administration.compact()
    clock = VirtualClock(datetime.now(UTC))
    reported: list[str] = []
    async with looking_after(store, clock, reported.append):
        if fault == "removed":
            path.unlink()
        elif fault == "replaced":
            other = path.with_name("other.db")
            other.write_bytes(path.read_bytes())
            other.replace(path)
        else:
            with path.open("r+b") as file:
                file.seek(4096)
                file.write(b"\xff" * 4096 * 10)
        await _until(f"amplifier.db: {'is' if fault == 'damaged' else 'was'} {fault}", clock, caplog)
    assert caplog.text.count("ERROR") == 1
    assert f"amplifier.db: {'is' if fault == 'damaged' else 'was'} {fault}" in reported[-1]


async def test_a_sound_store_without_room_for_a_backup_is_logged_and_no_problem_of_the_store(
    store: SqliteStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    clock = VirtualClock(datetime.now(UTC))
    reported: list[str] = []
    await store.create(SessionRecord("s"))
    async with looking_after(store, clock, reported.append):
        await _until("the disk has no room", clock, caplog)
    assert set(reported) == {""}


async def test_a_storage_without_an_administration_is_left_alone() -> None:
    clock = VirtualClock(datetime.now(UTC))
    async with looking_after(MemoryStore(), clock):
        await clock.advance(10 * LOOK_EVERY)
