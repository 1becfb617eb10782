"""Which sessions may be forgotten."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import SessionEvent, SessionRecord, TriggerEvent, TriggerType
from amplifier_core.errors import AmplifierError, SessionNotFound, StoreUnavailable
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore, Purged
from amplifier_core.store_views import StoreViews
from amplifier_core.testing import MemoryStore, VirtualClock
from amplifier_core.testing.shared_memory_store import SharedMemoryStore
from amplifier_foundation import Bundle
from amplifier_foundation.background.retention import (
    LONGEST,
    OVER_FOR,
    PURGE_EVERY,
    Retention,
    age,
    delete_expired,
    disposable,
    find_disposable,
    purging,
    retention_in,
)
from amplifier_foundation.background.up import run_background
from amplifier_foundation.sessions import store_views
from amplifier_foundation.sessions.lock import session_lock
from amplifier_foundation.sessions.presence import this_process
from amplifier_foundation.settings import read_settings
from amplifier_hooks_logging.config import DEFAULT_PATH
from amplifier_hooks_logging.paths import log_path

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def aged(days: int, **fields: Any) -> SessionRecord:
    return SessionRecord(f"s{days}", updated=NOW - timedelta(days=days), **{"status": "completed", **fields})


def chosen(*records: SessionRecord, **rules: Any) -> list[str]:
    return [record.session_id for record in disposable(records, **{"before": None, **rules})]


@pytest.mark.parametrize(
    ("text", "hours"),
    [("90m", 1.5), ("36h", 36), ("30 days", 720), ("8w", 1344), (" 1d ", 24), ("1h30m", 1.5)],
)
def test_an_age_is_numbers_with_units(text: str, hours: float) -> None:
    assert age(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "٣d", "1 month"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30d"):
        age(text)


def test_an_age_that_no_calendar_reaches_is_the_longest_one() -> None:
    assert age("999999999d") == age("9999999w") == timedelta(seconds=LONGEST)
    assert datetime.now(UTC) - timedelta(seconds=LONGEST)


def test_the_oldest_go_first_and_the_newest_stay() -> None:
    records = [aged(3), aged(1), aged(2)]
    assert chosen(*records) == ["s3", "s2", "s1"]
    assert chosen(*records, keep=2) == ["s3"]
    assert chosen(*records, keep=5) == []
    assert chosen(*records, before=NOW - timedelta(days=1)) == ["s3", "s2"]
    assert chosen(*records, before=NOW, keep=1) == ["s3", "s2"]


def test_what_runs_or_is_needed_stays() -> None:
    assert chosen(aged(3, status="running"), aged(2), aged(1), needed={"s2"}) == ["s1"]


async def test_disposable_sessions_are_read_in_steps_and_kept_without_what_is_large(
    home: Path, store: DurableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, StoreViews)
    for days in range(10):
        project = "/a" if days % 3 else "/b"
        await store.create(aged(days, project=project, metadata={"large": "x" * 100}, config={"session": {}}))
    at_work = {"status": "running", "metadata": {"process": this_process(), "large": "x"}}
    await store.create(replace(aged(20, project="/a"), **at_work))
    monkeypatch.setattr(store_views, "STEP", 2)
    before = NOW - timedelta(days=4)
    everything = await store.sessions()
    for projects in (None, {"/a"}, {"/a", "/b"}):
        records = [each for each in everything if projects is None or each.project in projects]
        for rules in ({"before": before}, {"before": None, "keep": 3}, {"before": before, "keep": 7, "needed": {"s9"}}):
            found = await find_disposable(store, projects, **rules)  # type: ignore[arg-type]  # of several types
            assert [each.session_id for each in found] == chosen(*records, **rules)
            assert not any(each.metadata or each.config for each in found)
    pages: list[int] = []
    read = store.session_page

    async def read_and_delete(**wanted: Any) -> list[SessionRecord]:
        page = await read(**wanted)
        pages.append(len(page))
        if page:
            await store.delete(page[-1].session_id)
        return page

    monkeypatch.setattr(store, "session_page", read_and_delete)
    monkeypatch.setattr(store, "sessions", None)
    assert len(await find_disposable(store, None, before=before)) == 5
    assert max(pages) == 2


async def test_what_is_over_in_an_inbox_is_forgotten_at_once_and_then_every_hour() -> None:
    store, clock = MemoryStore(), VirtualClock(NOW)
    await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"), refused="no", now=NOW)
    await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"), now=NOW)
    await store.emit(SessionEvent("old", {}, timestamp=NOW - timedelta(days=300)))
    async with purging(store, clock):
        await clock.advance(PURGE_EVERY)
        assert len(await store.deliveries()) == 2
        await clock.advance(OVER_FOR.total_seconds() + PURGE_EVERY)
        assert [delivery.state for delivery in await store.deliveries()] == ["pending"]
    assert [event.name for event in await store.events()] == ["old"]  # the log is small


async def test_on_a_store_of_several_hosts_its_clock_tells_what_is_old(
    home: Path, tmp_path: Path, plugins: Plugins
) -> None:
    asked: asyncio.Future[datetime] = asyncio.get_running_loop().create_future()

    class Shared(SharedMemoryStore):
        async def expired_sessions(self, *, before: datetime, keep: int = 0, limit: int = 1000) -> list[str]:
            asked.set_result(before)
            return await super().expired_sessions(before=before, keep=keep, limit=limit)

    store = Shared(VirtualClock(datetime.now(UTC) - timedelta(days=8)))
    await store.create(SessionRecord("young", updated=await store.now()))
    declared = {"bundle": {"name": "b"}, "background_sessions": [{"name": "queue", "instruction": "Go."}]}
    bundle = Bundle.from_dict(declared, tmp_path)
    async with run_background([bundle], store, plugins, retention=Retention(timedelta(days=7))):
        async with asyncio.timeout(120):
            before = await asked
        assert before - (await store.now() - timedelta(days=7)) < timedelta(minutes=5)


async def test_an_inbox_that_cannot_be_trimmed_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Full(MemoryStore):
        tries = 0

        async def purge(self, *, before: datetime, event_bytes: int = 0) -> Purged:
            self.tries += 1
            raise StoreUnavailable(Path("store.db"), "the disk is full")

    store, clock = Full(), VirtualClock(NOW)
    caplog.set_level("WARNING")
    async with purging(store, clock):
        await clock.advance(2 * PURGE_EVERY + 1)
    assert store.tries == 3
    assert "store.db" in caplog.text
    assert "the disk is full" in caplog.text


async def woken(store: MemoryStore, session_id: str, **fields: Any) -> None:
    await store.create(SessionRecord(session_id, **{"event_id": "e", "status": "completed", **fields}))


async def test_a_spent_session_is_forgotten_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path))
    store = MemoryStore()
    await woken(store, "old")
    for session_id in ("old", "other"):
        log = log_path(DEFAULT_PATH, session_id, "/work/shop")
        log.parent.mkdir(parents=True)
        log.write_text("{}\n")
    assert await delete_expired(store, datetime.now(UTC) + timedelta(days=1)) == 1
    assert [each.name for each in tmp_path.glob("projects/*/sessions/*")] == ["other"]


async def test_a_spent_session_is_forgotten_with_those_that_it_made() -> None:
    store = MemoryStore()
    await woken(store, "old")
    await store.create(SessionRecord("agent", "old", status="completed"))
    await store.create(SessionRecord("agent-of-agent", "agent", status="completed"))
    await store.create(SessionRecord("fork", "old", fork_of="old", fork_at=0, status="idle"))
    await woken(store, "woken-by-old", parent_id="old", status="running")
    await store.create(SessionRecord("person", status="completed"))
    assert await delete_expired(store, datetime.now(UTC) - timedelta(days=1)) == 0
    for held in ("old", "agent-of-agent"):
        with session_lock(held):  # somebody talks in it
            assert await delete_expired(store, datetime.now(UTC) + timedelta(days=1)) == 0
    assert await delete_expired(store, datetime.now(UTC) + timedelta(days=1)) == 3
    assert {record.session_id for record in await store.sessions()} == {"fork", "woken-by-old", "person"}


async def test_what_background_sessions_made_is_forgotten_as_the_settings_say() -> None:
    store, clock = MemoryStore(), VirtualClock(datetime.now(UTC))
    for number in range(3):
        await woken(store, f"s{number}", name="queue")
    async with purging(store, clock, Retention(timedelta(days=2), keep=1)):
        await clock.advance(86_400)
        assert len(await store.sessions()) == 3
        await clock.advance(2 * 86_400)
        assert len(await store.sessions()) == 1
    async with purging(store, clock):
        await clock.advance(5 * 86_400)
        assert len(await store.sessions()) == 1


def test_sessions_are_kept_as_long_as_the_settings_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path))
    assert Retention.of(read_settings()) == Retention(timedelta(days=90), 20)
    for text, kept in (("0", None), ("36h", timedelta(hours=36)), ("99999999w", timedelta(seconds=3e9))):
        (tmp_path / "settings.yaml").write_text(f"retention: {{sessions: {text}, keep: 1}}\n")
        assert Retention.of(read_settings()) == Retention(kept, 1)
    for text, size in (
        ("0", None),
        ("1000", 1000),
        ("500 MB", 500_000_000),
        ("1.5GB", 1_500_000_000),
        ("2 GiB", 2**31),
    ):
        (tmp_path / "settings.yaml").write_text(f"retention: {{max_size: {text}}}\n")
        assert Retention.of(read_settings()).max_size == size


@pytest.mark.parametrize("text", ["-1", "big", "5 XB", "1e9", "true", "1.5", "1 2 MB"])
def test_what_is_no_size_is_refused_by_line(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path))
    (tmp_path / "settings.yaml").write_text(f"retention:\n  max_size: {text}\n")
    with pytest.raises(AmplifierError, match=r"settings\.yaml:2:.*(size such as 500 MB|must be)"):
        read_settings()


@pytest.mark.parametrize("text", ["5", "90", "0.5"])
def test_a_short_age_without_a_unit_is_refused_by_line(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path))
    file = tmp_path / "settings.yaml"
    file.write_text(f"retention:\n  sessions: {text}\n")
    with pytest.raises(AmplifierError, match=rf"settings\.yaml:2:.*{text} without a unit is seconds; write '{text}d'"):
        read_settings()
    for allowed, seconds in ((f"{text}s", float(text)), ("3600", 3600)):
        file.write_text(f"retention:\n  sessions: {allowed}\n")
        assert Retention.of(read_settings()).sessions == timedelta(seconds=seconds)


async def test_each_project_has_the_retention_of_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.yaml").write_text("retention: {sessions: 30d, keep: 0}\n")
    settings = {"ours": "sessions: 1d", "theirs": "sessions: 0", "broken": "sesions: 1d, keep: x"}
    for name, text in settings.items():
        (tmp_path / name / ".amplifier").mkdir(parents=True)
        (tmp_path / name / ".amplifier" / "settings.yaml").write_text(f"retention: {{{text}}}\n")
    (tmp_path / "plain").mkdir()
    store, clock = MemoryStore(), VirtualClock(datetime.now(UTC))
    for name in (*settings, "plain", "gone"):
        await woken(store, name, project=str(tmp_path / name))
    await woken(store, "no-project")

    async def left() -> set[str]:
        return {record.session_id for record in await store.sessions()}

    async def wait(days: int) -> None:
        for seconds in (days * 86_400, PURGE_EVERY):  # a purge reads settings in a thread, while time goes on
            await clock.until_sleeping()
            await clock.advance(seconds)
        await clock.until_sleeping()

    async with purging(store, clock, retention_in, [str(tmp_path / "ours")]):
        await wait(days=2)
        assert await left() == {"theirs", "broken", "plain", "gone", "no-project"}
        monkeypatch.delenv("AMPLIFIER_TRUST")
        await wait(days=31)
        assert await left() == {"theirs", "broken"}


async def test_settings_that_nobody_trusts_forget_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMPLIFIER_TRUST", raising=False)
    (tmp_path / ".amplifier").mkdir()
    (tmp_path / ".amplifier" / "settings.yaml").write_text("retention: {sessions: 1s}\n")
    assert retention_in(str(tmp_path)) is None
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    assert retention_in(str(tmp_path)) == Retention(timedelta(seconds=1), 20)


async def test_two_processes_forget_the_same_sessions(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(MemoryStore):
        async def delete(self, session_id: str) -> None:
            with suppress(SessionNotFound):  # another process
                await super().delete(session_id)
            await super().delete(session_id)

    store, clock = Slow(), VirtualClock(datetime.now(UTC))
    for number in range(3):
        await woken(store, f"s{number}")
    async with purging(store, clock, Retention(timedelta(days=1))):
        await clock.advance(2 * 86_400)
    assert await store.sessions() == []
    assert caplog.text == ""
