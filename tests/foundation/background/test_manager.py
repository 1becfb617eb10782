"""The manager of background sessions: what it is told, what it tells, and what it starts and stops."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import (
    AmplifierSession,
    SessionConflict,
    SessionNotFound,
    SessionRecord,
    TriggerConfigError,
    UnknownName,
)
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import (
    Activity,
    BackgroundSessionConfig,
    BackgroundSessionManager,
    EventRouter,
    run_background,
)
from amplifier_foundation.background import status_log
from amplifier_foundation.bundle import load_bundle
from amplifier_foundation.bundle.prepared import PreparedBundle
from amplifier_foundation.cli import exits
from amplifier_foundation.cli.exits import exit_code
from tests.foundation.shelf import Shelf

from .bench import FedTrigger, events_of, raised_by_feed

OpenBench = Callable[..., Any]
Held = list[dict[str, Any]]

BUNDLE = """---
bundle: {name: family}
session: {orchestrator: loop-basic, context: context-simple}
providers: [{module: provider-playbook, config: {otherwise: {say: fine}}}]
background_sessions:
  - name: notes
    triggers: [{type: session_event, config: {event_names: [note]}}]
    pool_size: 2
  - name: later
    start_on_parent_start: false
---
"""


def test_config_defaults() -> None:
    config = BackgroundSessionConfig(name="a")
    assert (config.pool_size, config.mode, config.priority, config.catch_up) == (1, "queued", 0, "all")
    assert (config.restart_on_failure, config.max_restarts, config.restart_window) == (True, 3, 60)
    assert (config.start_on_parent_start, config.stop_on_parent_stop) == (True, True)
    assert (config.on_complete_emit, config.on_error_emit, config.triggers) == (None, None, [])
    assert (config.timeout, config.max_attempts, config.max_depth) == (1800, 5, 8)
    assert [
        config.rate_limit,
        config.key,
        config.debounce,
        config.throttle,
        config.condition,
        config.fork_from,
        config.runner,
    ] == [None] * 7


def test_config_custom_values() -> None:
    config = BackgroundSessionConfig.model_validate(
        {
            "name": "a",
            "pool_size": 4,
            "mode": "restart",
            "key": "{file_path}",
            "if": "data.n > 1",
            "debounce": {"period": "200ms", "timeout": 5},
            "throttle": {"limit": 2, "period": "1m"},
            "retry": {"delay": "2s", "max_delay": "1h"},
            "triggers": [{"type": "file_change", "config": {"patterns": ["*.py"]}}],
        }
    )
    assert (config.pool_size, config.mode, config.key, config.condition) == (4, "restart", "{file_path}", "data.n > 1")
    assert config.debounce is not None
    assert (config.debounce.period, config.debounce.timeout, config.debounce.key) == (0.2, 5, None)
    assert config.throttle is not None
    assert (config.throttle.limit, config.throttle.period) == (2, 60)
    assert (config.retry.delay, config.retry.max_delay) == (2, 3600)
    assert config.triggers[0].module == "trigger-file-watcher"
    assert BackgroundSessionConfig.model_validate(config.model_dump(by_alias=True)) == config


async def test_start_creates_task(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "background-queue"]
        assert not task.done()


async def test_start_returns_session_id(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        first, second = await bench.start(), await bench.start(name="other")
    assert [bool(re.fullmatch(r"bg-(queue|other)-\d{4}", each)) for each in (first, second)] == [True, True]
    assert first != second


async def test_start_returns_when_the_triggers_are_armed(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        assert bench.kinds() == ["armed"]
        assert bench.manager.get_status(session_id)["status"] == "running"


async def test_several_are_armed_side_by_side_and_an_error_of_one_ends_all_starts(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bench() as bench:
        first, second, third = (
            BackgroundSessionConfig(name=name, triggers=[{"module": "trigger-fed"}])  # type: ignore[list-item]
            for name in ("first", "second", "third")
        )
        together = asyncio.Barrier(2)

        async def ready(self: FedTrigger) -> None:
            await together.wait()  # one that is armed after the other waits here for ever

        monkeypatch.setattr(FedTrigger, "ready", ready, raising=False)
        async with asyncio.timeout(60):
            await bench.manager.start_all([first, second])
        assert [each["name"] for each in bench.manager.get_status().values()] == ["first", "second"]
        wrong = BackgroundSessionConfig(name="wrong", triggers=[{"module": "trigger-nowhere"}])  # type: ignore[list-item]
        async with asyncio.timeout(60):
            with pytest.raises(UnknownName, match="trigger-nowhere"):
                await bench.manager.start_all([third, wrong])  # the third would wait


async def test_stop_cancels_task(open_bench: OpenBench) -> None:
    tasks = asyncio.all_tasks()
    async with open_bench() as bench:
        session_id = await bench.start(pool_size=4)
        assert len(asyncio.all_tasks()) > len(tasks)
        assert await bench.manager.stop(session_id)
        assert not await bench.manager.stop(session_id)
        assert asyncio.all_tasks() == tasks
        assert bench.manager.get_status(session_id)["status"] == "stopped"


async def test_stop_waits_until_the_trigger_has_stopped(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        session_id = await bench.start()
        bench.trigger.feed(1)
        await bench.until("session")
        assert await bench.manager.stop(session_id, grace=0)
        assert bench.trigger.queue.get_nowait() is None
        assert await bench.states() == ["pending"]


async def test_stop_all_stops_all(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        await bench.start(name="other")
        await bench.manager.stop_all()
        assert bench.statuses() == {"queue": "stopped", "other": "stopped"}
        assert {each.name for each in bench.seen if each.facts.get("status") == "stopped"} == {"queue", "other"}
        await bench.start()
        assert bench.statuses() == {"other": "stopped", "queue": "running"}


async def test_who_is_cancelled_while_it_stops_is_told_so(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        session_id = await bench.start()
        bench.trigger.feed(1)
        await bench.until("session")
        stopping = asyncio.create_task(bench.manager.stop(session_id))
        await bench.holds(lambda: bench.manager.get_status(session_id)["status"] == "stopping")
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        bench.held().go.set()
        await bench.until("completed")


async def test_get_status_returns_all(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        ids = [await bench.start(), await bench.start(name="other")]
        status = bench.manager.get_status()
        assert list(status) == ids
        assert [row["name"] for row in status.values()] == ["queue", "other"]
        assert bench.manager.get_status(ids[1]) == status[ids[1]]
        assert bench.manager.get_status("other") == status[ids[1]]
        with pytest.raises(SessionNotFound):
            bench.manager.get_status("nobody")


async def test_status_tracks_trigger_count(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("completed", count=3)
        assert bench.manager.get_status(session_id)["trigger_count"] == 3


async def test_status_tracks_last_trigger(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        assert bench.manager.get_status(session_id)["last_trigger"] is None
        moment = bench.clock.now() - timedelta(minutes=1)
        bench.trigger.feed(1, timestamp=moment)
        await bench.until("accepted")
        assert bench.manager.get_status(session_id)["last_trigger"] == moment.isoformat()


async def test_names_are_unique_and_bad_triggers_are_refused_at_the_start(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        with pytest.raises(TriggerConfigError, match="bad: cannot be"):
            await bench.start(triggers=[{"module": "trigger-fed", "config": {"bad": 1}}])
        with pytest.raises(UnknownName, match="trigger-nowhere"):
            await bench.start(triggers=[{"module": "trigger-nowhere"}])
        assert bench.manager.get_status() == {}
        with pytest.raises(SessionNotFound):
            await bench.manager.fire("queue")
        both = await asyncio.gather(bench.start(), bench.start(), return_exceptions=True)
        [refusal] = [each for each in both if isinstance(each, SessionConflict)]
        assert "'queue' runs already" in str(refusal)
        assert len(bench.manager.get_status()) == 1


async def test_one_that_cannot_be_started_is_not_there_and_may_be_started_again(
    open_bench: OpenBench, store: DurableStore
) -> None:
    async with open_bench() as bench:
        await store.close()
        with pytest.raises(OSError, match="closed"):
            await bench.start(catch_up="skip", triggers=[])
        assert bench.manager.get_status() == {}
        await bench.start(triggers=[])


async def test_an_observer_that_fails_changes_nothing(open_bench: OpenBench, caplog: pytest.LogCaptureFixture) -> None:
    def fail(activity: Activity) -> None:
        raise ValueError("observer")

    async with open_bench() as bench:
        bench.manager._engine.observers.insert(0, fail)
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed")
    assert "an observer of background sessions failed" in caplog.text


async def test_every_state_is_told_to_who_subscribes(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        news = bench.router.subscribe([status_log.BACKGROUND_STATE])
        session_id = await bench.start(max_restarts=0)
        bench.trigger.fail("the disk is gone")
        await bench.until("trigger_failed")
        await bench.manager.stop(session_id)
        told = [(await anext(news)).data for _ in range(4)]
    assert [(each["status"], each["reason"]) for each in told] == [
        ("running", ""),
        ("failed", raised_by_feed("the disk is gone")),
        ("stopping", ""),
        ("stopped", ""),
    ]
    assert {(each["session_id"], each["name"]) for each in told} == {(session_id, "queue")}


async def test_the_bundle_of_a_session_is_prepared_once_and_its_parent_stays_as_it_was(
    open_bench: OpenBench, tmp_path: Path, parent: AmplifierSession
) -> None:
    (tmp_path / "worker").mkdir()
    worker = tmp_path / "worker" / "bundle.md"
    worker.write_text("---\nbundle: {name: worker}\n---\nWork.\n")
    before = deepcopy(parent.config)
    async with open_bench() as bench:
        await bench.start(bundle="./worker/bundle.md")
        worker.unlink()
        for n in range(2):
            bench.trigger.feed(n)
        await bench.until("completed", count=2)
        records = [await bench.store.get(each.session_id) for each in await bench.deliveries()]
    assert [each.bundle for each in records] == ["worker", "worker"]
    assert parent.config == before
    assert list(parent.children) == []


# tied to what they are the children of


async def test_the_end_of_the_parent_stops_what_shall_stop_with_it(
    open_bench: OpenBench, parent: AmplifierSession
) -> None:
    async with open_bench() as bench:
        await bench.start()
        await bench.start(name="kept", triggers=[], stop_on_parent_stop=False)
        await parent.cleanup()
        assert bench.statuses() == {"queue": "stopped", "kept": "running"}


async def test_bundle_parses_background_sessions(tmp_path: Path) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    notes, later = (await load_bundle(str(tmp_path / "bundle.md"))).background_sessions
    assert (notes.name, notes.pool_size, notes.triggers[0].module) == ("notes", 2, "trigger-session-event")
    assert (later.name, later.start_on_parent_start, later.triggers) == ("later", False, [])


async def test_orchestrator_initializes_manager(
    tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins
) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    bundle = await load_bundle(str(tmp_path / "bundle.md"))
    async with run_background([bundle], store, plugins) as [up]:
        assert isinstance(up.manager, BackgroundSessionManager)
        assert await up.manager.fire("notes")
        assert up.root.coordinator.get_capability("session.working_dir") == str(tmp_path)


async def test_a_small_storage_is_enough_for_the_sessions_of_background_sessions(
    tmp_path: Path, home: Path, plugins: Plugins, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    bundle, shelf = await load_bundle(str(tmp_path / "bundle.md")), Shelf()
    async with run_background([bundle], shelf, plugins) as [up]:
        completed = up.router.subscribe(["session:completed"])
        assert await up.manager.fire("notes")
        event = await anext(completed)
    assert "Shelf keeps no inbox: events that wait for background sessions are kept in memory" in caplog.text
    transcript, metadata = shelf.load(event.data["session_id"])
    assert (metadata["status"], [message["role"] for message in transcript]) == ("completed", ["user", "assistant"])
    assert shelf.load(up.root.session_id)[1]["status"] == "idle"


async def test_orchestrator_starts_configured_sessions(
    tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins
) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    bundle = await load_bundle(str(tmp_path / "bundle.md"))
    async with run_background([bundle], store, plugins) as [up]:
        assert [row["name"] for row in up.manager.get_status().values()] == ["notes"]
        del up.root.ended_at  # as a stand-in of another engine
        await up.manager.start(bundle.background_sessions[1])
        assert [row["name"] for row in up.manager.get_status().values()] == ["notes", "later"]


async def test_orchestrator_stops_on_cleanup(tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    tasks = asyncio.all_tasks()
    async with run_background([await load_bundle(str(tmp_path / "bundle.md"))], store, plugins) as [up]:
        assert (await store.get(up.root.session_id)).status == "running"
    assert [row["status"] for row in up.manager.get_status().values()] == ["stopped"]
    with pytest.raises(SessionConflict, match="'notes' cannot start: its parent has ended; begin another"):
        await up.manager.change("notes", "running")
    assert asyncio.all_tasks() == tasks
    assert (await store.get(up.root.session_id)).status == "idle"


@pytest.mark.parametrize("moment", ["stored", "mounting"])
async def test_the_session_above_is_idle_when_it_is_cut_while_it_is_made(
    moment: str, tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()
    create = store.create

    async def create_slowly(record: SessionRecord) -> SessionRecord:
        stored = await create(record)
        begun.set()
        await goes_on.wait()
        return stored

    async def mount_slowly(*given: object, **named: object) -> None:
        begun.set()
        await goes_on.wait()

    if moment == "stored":
        monkeypatch.setattr(store, "create", create_slowly, raising=False)
    else:
        monkeypatch.setattr(PreparedBundle, "create_session", mount_slowly)
    (tmp_path / "bundle.md").write_text(BUNDLE)
    bundle = await load_bundle(str(tmp_path / "bundle.md"))

    async def bring_up() -> None:
        async with run_background([bundle], store, plugins):
            raise AssertionError("it was cut before")

    running = asyncio.create_task(bring_up())
    await begun.wait()
    running.cancel()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    [record] = await store.sessions()
    assert record.status == "idle"


async def test_event_router_registered(tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    done = asyncio.Event()
    async with run_background(
        [await load_bundle(str(tmp_path / "bundle.md"))],
        store,
        plugins,
        observer=lambda activity: done.set() if activity.kind == "completed" else None,
    ) as [up]:
        await up.root.coordinator.get_capability("event.emit")("note", {"text": "remember"})
        async with asyncio.timeout(60):
            await done.wait()
    [note, completed] = await events_of(store)
    assert (note.name, note.source_session_id) == ("note", up.root.session_id)
    [delivery] = await store.deliveries()
    assert (completed.name, completed.cause) == ("session:completed", delivery.event.event_id)
    assert delivery.event.cause == note.event_id


async def test_a_second_one_on_the_same_data_folder_is_told_who_the_first_is(
    tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins
) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    bundle = await load_bundle(str(tmp_path / "bundle.md"))
    async with run_background([bundle], store, plugins) as [up]:
        with pytest.raises(SessionConflict, match=rf"process {os.getpid()} runs family since") as refusal:
            async with run_background([bundle], store, plugins):
                raise AssertionError("two of them")
        assert exit_code(refusal.value) == exits.CONFLICT
        assert list(up.manager.get_status()) == ["bg-notes-0001"]


# bundles that change while they run


async def test_what_waits_is_handled_after_a_change_whatever_catch_up_says(
    open_bench: OpenBench, held: Held, make_bundle: Callable[..., Any]
) -> None:
    config = {"name": "queue", "triggers": [{"module": "trigger-fed"}], "catch_up": "skip"}
    async with open_bench(providers=held) as bench:
        await bench.start(catch_up="skip")
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("session")
        await bench.until("accepted", count=3)
        changed = make_bundle("family", providers=held, background_sessions=[{**config, "pool_size": 2}])
        assert await bench.manager.reconcile(changed, grace=0) == ["queue"]

        def all_are_done_when_let_go() -> bool:
            for session in bench.told("session", "session"):
                session.coordinator.get_capability("tests.held").go.set()
            return bool(bench.kinds().count("completed") == 3)

        await bench.holds(all_are_done_when_let_go)
        assert await bench.states() == ["done"] * 3


async def test_a_change_starts_what_is_new_ends_what_is_gone_and_leaves_the_others(
    open_bench: OpenBench, make_bundle: Callable[..., Any]
) -> None:
    same = {"name": "same", "triggers": [{"module": "trigger-fed"}]}
    async with open_bench() as bench:
        bundle = make_bundle("family", background_sessions=[same, {"name": "gone"}])
        assert await bench.manager.reconcile(bundle) == ["gone", "same"]
        running, status = len(FedTrigger.made), bench.manager.get_status()
        bundle = make_bundle("family", background_sessions=[same, {"name": "gone", "start_on_parent_start": False}])
        bundle.bundle.background_sessions.append(BackgroundSessionConfig(name="fresh"))
        assert "fresh" in await bench.manager.reconcile(bundle)
        assert {row["name"] for row in bench.manager.get_status().values()} == {"same", "fresh"}
    assert running == 1  # a start makes its trigger once
    assert len(status) == 2


async def test_managers_of_one_store_and_router_share_nothing_else(
    open_bench: OpenBench, parent: AmplifierSession, plugins: Plugins, make_bundle: Callable[..., Any]
) -> None:
    async with open_bench() as bench:
        await bench.start(triggers=[])
        other = BackgroundSessionManager(
            parent,
            EventRouter(bench.store),
            bench.store,
            plugins=plugins,
            bundle=make_bundle("other"),
            clock=bench.clock,
        )
        async with other:
            await other.start(BackgroundSessionConfig(name="queue"))
            assert await bench.manager.fire("queue")
            await bench.until("completed")
            assert [row["trigger_count"] for row in other.get_status().values()] == [0]
