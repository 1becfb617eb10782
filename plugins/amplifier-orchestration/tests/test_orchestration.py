"""Programs that import `amplifier_orchestration` run as its specification and its users write them."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import amplifier_foundation
import amplifier_orchestration
from amplifier_core import AmplifierSession, TriggerContext, load_plugins
from amplifier_core.storage import DurableStore
from amplifier_core.testing import VirtualClock
from amplifier_foundation import load_bundle, open_inbox
from amplifier_orchestration import (
    BackgroundSessionConfig,
    BackgroundSessionManager,
    EventRouter,
    FileChangeTrigger,
    ManualTrigger,
    SessionEmitter,
    SessionEvent,
    SessionEventTrigger,
    SpawnResult,
    TimerTrigger,
    TriggerEvent,
    TriggerSource,
    TriggerType,
    spawn_bundle,
)

README = Path(__file__).parents[1] / "README.md"
PATIENCE = 20
WORKER = """---
bundle: {name: worker}
session: {orchestrator: loop-basic, context: context-simple}
providers: [{module: provider-playbook, config: {otherwise: {say: "You said: {prompt}"}}}]
---
"""
PLACES = {
    "events": "EventRouter SessionEvent SessionEmitter",
    "triggers": (
        "TriggerSource TriggerEvent TriggerType FileChangeTrigger ManualTrigger SessionEventTrigger TimerTrigger"
    ),
    "spawn": "spawn_bundle SpawnResult SessionStorage",
    "background": "BackgroundSessionConfig BackgroundSessionManager BackgroundSessionState",
}
TRIGGERS = [FileChangeTrigger, TimerTrigger, SessionEventTrigger, ManualTrigger]


@pytest.fixture
def worker(tmp_path: Path) -> str:
    (tmp_path / "bundle.md").write_text(WORKER)
    return str(tmp_path / "bundle.md")


@pytest.fixture
async def parent(worker: str, tmp_path: Path) -> AsyncIterator[AmplifierSession]:
    prepared = await (await load_bundle(worker)).prepare()
    session = await prepared.create_session(session_cwd=tmp_path)
    yield session
    await session.cleanup()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DurableStore]:
    opened = open_inbox(load_plugins(environ={}), path=tmp_path / "store" / "amplifier.db")
    yield opened
    await opened.close()


async def take(trigger: TriggerSource, count: int = 1) -> list[TriggerEvent]:
    """Return the first events of a trigger, and stop it."""
    received = []
    async for event in trigger.watch():
        received.append(event)
        if len(received) >= count:
            await trigger.stop()
            break
    return received


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters}


# the names


@pytest.mark.parametrize("place", PLACES)
def test_a_name_is_the_same_in_its_module_and_in_the_package(place: str) -> None:
    module = import_module(f"amplifier_orchestration.{place}")
    assert sorted(module.__all__) == sorted(PLACES[place].split())
    for name in PLACES[place].split():
        assert getattr(module, name) is getattr(amplifier_orchestration, name), name


def test_the_package_has_these_names_and_no_others() -> None:
    names = " ".join(PLACES.values()).split()
    assert sorted(amplifier_orchestration.__all__) == sorted(names)
    assert set(names) <= set(dir(amplifier_orchestration))
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from amplifier_orchestration import Nothing  # type: ignore[attr-defined]  # noqa: F401


def test_what_is_no_different_is_the_foundations_own() -> None:
    for name in (*PLACES["events"].split(), *PLACES["spawn"].split(), "TriggerSource", "TriggerEvent", "TriggerType"):
        assert getattr(amplifier_orchestration, name) is getattr(amplifier_foundation, name)
    for name in PLACES["background"].split():
        assert issubclass(getattr(amplifier_orchestration, name), getattr(amplifier_foundation, name))


@pytest.mark.parametrize(
    "statement",
    [
        "from amplifier_orchestration import EventRouter, SessionEvent",
        "from amplifier_orchestration import EventRouter, SessionEvent, SessionEmitter",
        "from amplifier_orchestration import TriggerSource, TriggerEvent, TriggerType",
        "from amplifier_orchestration import BackgroundSessionManager",
        "from amplifier_orchestration.spawn import spawn_bundle",
        "from amplifier_orchestration import *",
    ],
)
def test_the_acceptance_commands_succeed_in_a_process_of_their_own(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True)


def test_the_package_alone_imports_nothing_and_the_router_no_trigger() -> None:
    code = """
import sys
import amplifier_orchestration
assert not [name for name in sys.modules if name.startswith(("amplifier_foundation", "amplifier_trigger"))]
from amplifier_orchestration import EventRouter
assert not [name for name in sys.modules if name.startswith("amplifier_trigger")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# events


async def test_a_collector_receives_events_of_two_sessions() -> None:
    router = EventRouter()
    received: list[SessionEvent] = []

    async def collect() -> None:
        async for event in router.subscribe(["test:event"]):
            received.append(event)
            if len(received) >= 2:
                break

    task = asyncio.create_task(collect())
    while not router.subscriber_count:
        await asyncio.sleep(0)
    await router.emit("test:event", {"n": 1}, source_session_id="session-1")
    await router.emit("test:event", {"n": 2}, source_session_id="session-2")
    await asyncio.wait_for(task, PATIENCE)
    assert received[0].data["n"] == 1
    assert received[1].source_session_id == "session-2"
    assert received[0].timestamp.tzinfo is not None


async def test_an_emitter_binds_its_session_and_all_events_match_a_star() -> None:
    router = EventRouter()
    async with router.subscribe(["*"], source_sessions=["a"], queue_size=100) as reader:
        await router.create_session_emitter("b").emit("work:done", {})
        await SessionEmitter(router, "a").emit("work:done", {"n": 1})
        event = await anext(reader)
    assert (event.name, event.data, event.source_session_id) == ("work:done", {"n": 1}, "a")
    assert defaults(EventRouter.subscribe)["queue_size"] == 100
    assert await router.wait_for_event(["never"], timeout=0) is None


# triggers


def test_events_of_triggers_take_their_fields_in_order() -> None:
    now = VirtualClock().now()
    changed = TriggerEvent(TriggerType.FILE_CHANGE, "file-watcher", now, {"n": 1}, "a.txt", "created", None, None)
    assert (changed.timestamp, changed.data, changed.file_path, changed.change_type) == (
        now,
        {"n": 1},
        "a.txt",
        "created",
    )
    assert SessionEvent("work:done", {}, "session-1", now).timestamp == now
    assert {each.value for each in TriggerType} >= {"file_change", "timer", "session_event", "webhook", "issue_event"}


@pytest.mark.parametrize("make", TRIGGERS)
async def test_every_trigger_is_a_trigger_source(make: Callable[[], TriggerSource]) -> None:
    assert isinstance(make(), TriggerSource)


async def test_triggers_have_their_defaults_and_show_their_configuration(tmp_path: Path) -> None:
    files, timer, events = FileChangeTrigger(), TimerTrigger(), SessionEventTrigger()
    assert (files.patterns, files.debounce_ms, files.base_path) == (["**/*"], 1000, Path.cwd())
    assert (timer.interval_seconds, events.event_names, events.source_sessions) == (60, [], None)
    files.configure({"patterns": ["*.py"], "debounce_ms": 5000, "path": tmp_path})
    timer.configure({"interval_seconds": 5})
    events.configure({"event_names": ["work:done"], "source_sessions": ["a"]})
    assert (files.patterns, files.debounce_ms, files.base_path) == (["*.py"], 5000, tmp_path)
    assert (timer.interval_seconds, events.event_names, events.source_sessions) == (5, ["work:done"], ["a"])
    timer.configure({"cron": "0 9 * * *"})
    assert timer.interval_seconds is None


async def test_a_new_file_fires(tmp_path: Path) -> None:
    trigger = FileChangeTrigger()
    trigger.configure({"path": str(tmp_path), "patterns": ["*.txt"], "debounce_ms": 20})
    task = asyncio.create_task(take(trigger))
    await trigger.ready()
    (tmp_path / "test.md").write_text("no")
    (tmp_path / "test.txt").write_text("hello")
    [event] = await asyncio.wait_for(task, PATIENCE)
    assert event.type == TriggerType.FILE_CHANGE
    assert "test.txt" in str(event.file_path)
    assert (event.change_type, event.data["src_path"]) == ("created", str(tmp_path / "test.txt"))


async def test_a_timer_ticks_every_minute_without_a_configuration() -> None:
    clock, trigger = VirtualClock(), TimerTrigger()
    trigger.bind(TriggerContext("tests/timer#0", clock=clock))
    task = asyncio.create_task(take(trigger, 2))
    await trigger.ready()
    await clock.advance(120)
    assert [event.data for event in await task] == [
        {"tick": n, "interval": 60.0, "scheduled": f"2026-01-01T00:0{n}:00Z"} for n in (1, 2)
    ]


@pytest.mark.parametrize("by_constructor", [True, False])
async def test_a_session_event_fires(by_constructor: bool) -> None:
    router = EventRouter()
    trigger = SessionEventTrigger(router) if by_constructor else SessionEventTrigger()
    if not by_constructor:
        trigger.set_event_router(router)
    trigger.configure({"event_names": ["work:completed"]})
    task = asyncio.create_task(take(trigger))
    await trigger.ready()
    await router.emit("work:other", {})
    await router.emit("work:completed", {"n": 1}, "worker-1")
    [event] = await asyncio.wait_for(task, PATIENCE)
    assert (event.type, event.data, event.event_name, event.source_session_id) == (
        TriggerType.SESSION_EVENT,
        {"n": 1},
        "work:completed",
        "worker-1",
    )


async def test_session_events_need_names_and_a_router() -> None:
    with pytest.raises(RuntimeError, match="event_names: there are none"):
        await take(SessionEventTrigger(EventRouter()))
    alone = SessionEventTrigger()
    alone.configure({"event_names": ["*"]})
    with pytest.raises(RuntimeError, match="no session events to follow"):
        await take(alone)
    with pytest.raises(ValueError, match="event_names"):
        alone.configure({"event_names": []})


async def test_a_manual_trigger_fires_by_hand_until_it_is_stopped() -> None:
    trigger = ManualTrigger()
    await trigger.fire({"reason": "user requested"})
    await trigger.fire()
    await trigger.stop()
    fired = [(event.type, event.data) async for event in trigger.watch()]
    assert fired == [(TriggerType.MANUAL, {"reason": "user requested"}), (TriggerType.MANUAL, {})]


# spawned sessions


async def test_a_bundle_is_spawned_and_kept(parent: AmplifierSession, worker: str, store: DurableStore) -> None:
    result = await spawn_bundle(
        bundle=worker,
        instruction="Test prompt",
        parent_session=parent,
        session_name="worker",
        session_storage=store,
        event_router=EventRouter(),
    )
    assert isinstance(result, SpawnResult)
    assert (result.output, result.turn_count) == ("You said: Test prompt", 1)
    assert (await store.get(result.session_id)).parent_id == parent.session_id


def test_spawning_has_the_arguments_and_defaults_of_its_specification() -> None:
    required, options = ["bundle", "instruction", "parent_session"], {
        "inherit_providers": True,
        "inherit_tools": False,
        "inherit_hooks": False,
        "context_depth": "none",
        "context_scope": "conversation",
        "context_turns": 5,
        "session_id": None,
        "session_name": None,
        "session_storage": None,
        "timeout": None,
        "background": False,
        "event_router": None,
    }  # fmt: skip
    found = defaults(spawn_bundle)
    assert list(found)[: len(required) + len(options)] == [*required, *options]
    assert {name: found[name] for name in options} == options
    assert list(defaults(SpawnResult))[:3] == ["output", "session_id", "turn_count"]


# background sessions


def test_a_background_session_has_the_arguments_and_defaults_of_its_specification() -> None:
    config = BackgroundSessionConfig("observer", "observers:code", [{"module": "trigger-timer"}])
    assert (config.name, config.bundle, [each.module for each in config.triggers]) == (
        "observer",
        "observers:code",
        ["trigger-timer"],
    )
    assert (config.pool_size, config.on_complete_emit, config.on_error_emit) == (1, None, None)
    assert (config.start_on_parent_start, config.stop_on_parent_stop) == (True, True)
    assert (config.restart_on_failure, config.max_restarts) == (True, 3)
    declared: dict[str, Any] = {"name": "b", "bundle": "x:y", "triggers": [{"type": "timer"}], "pool_size": 3}
    assert BackgroundSessionConfig(**declared).pool_size == 3
    with pytest.raises(ValueError, match="pool_sise"):
        BackgroundSessionConfig("b", pool_sise=3)
    found = list(defaults(BackgroundSessionManager).items())
    assert [name for name, _ in found[:4]] == ["parent_session", "event_router", "session_storage", "trigger_loader"]
    assert [default for _, default in found[2:4]] == [None, None]


async def test_a_timer_by_a_loader_runs_a_session(parent: AmplifierSession, worker: str) -> None:
    clock, router = VirtualClock(), EventRouter()
    manager = BackgroundSessionManager(
        parent_session=parent, event_router=router, trigger_loader=lambda declared: TimerTrigger(), clock=clock
    )
    config = BackgroundSessionConfig(
        name="test-bg", bundle=worker, triggers=[{"module": "trigger-timer", "config": {"interval_seconds": 1}}]
    )
    async with asyncio.timeout(PATIENCE), router.subscribe(["session:completed"]) as completed:
        session_id = await manager.start(config)
        assert session_id.startswith("bg-test-bg-")
        assert manager.get_status()[session_id]["status"] == "running"
        await clock.advance(1.5)
        event = await anext(completed)
    assert event.data["output"] == "You said: Timer triggered (tick 1)"
    assert manager.get_status()[session_id]["trigger_count"] == 1
    await manager.stop(session_id)
    assert manager.get_status()[session_id]["status"] == "stopped"


async def test_a_program_chains_sessions_by_a_file_a_timer_events_and_by_hand(
    parent: AmplifierSession, worker: str, store: DurableStore, tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    clock, router = VirtualClock(), EventRouter()
    watcher = BackgroundSessionConfig(
        name="watcher",
        bundle=worker,
        triggers=[
            {"module": "trigger-file-watcher", "config": {"path": str(inbox), "patterns": ["*.txt"]}},
            {"module": "trigger-timer", "config": {"interval_seconds": 3600}},
        ],
        on_complete_emit="work:completed",
    )
    follower = BackgroundSessionConfig(
        name="follower",
        bundle=worker,
        triggers=[{"type": "session_event", "config": {"event_names": ["work:completed"]}}],
        instruction_template="Check: {output}",
    )
    async with BackgroundSessionManager(parent, router, store, clock=clock) as manager, asyncio.timeout(PATIENCE):
        for config in (follower, watcher):
            await manager.start(config)
        async with router.subscribe(["session:completed"]) as completed:

            async def answers(count: int) -> list[tuple[str, str]]:
                events = [(await anext(completed)).data for _ in range(count)]
                return [(event["session_name"], event["output"]) for event in events]

            await clock.advance(3600)
            ticked = "You said: Timer triggered (tick 1)"
            assert await answers(2) == [("watcher", ticked), ("follower", f"You said: Check: {ticked}")]
            (inbox / "note.txt").write_text("hello")
            while not any(row["trigger_count"] == 2 for row in manager.get_status().values()):
                await clock.advance(0.05)
                await asyncio.sleep(0.001)  # files are noticed and read in threads
            written = "You said: File changed: inbox/note.txt (created)"
            assert await answers(2) == [("watcher", written), ("follower", f"You said: Check: {written}")]
            [session_id] = [key for key, row in manager.get_status().items() if row["name"] == "follower"]
            assert await manager.fire_manual(session_id, {"output": "by hand"})
            assert await answers(1) == [("follower", "You said: Check: by hand")]
            assert not await manager.fire_manual("nobody")
    assert {row["status"] for row in manager.get_status().values()} == {"stopped"}


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    _, bundle, program, printed, _ = re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.M | re.S)
    (tmp_path / "bundle.md").write_text(bundle, encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
