"""Sessions in loops of their own: what they return and raise, how they end, and how a hanging one is given up."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_core import AmplifierSession, SessionConflict, SpawnRequest, hookimpl
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import EventRouter, PreparedBundle
from amplifier_foundation.spawning import own_loops
from amplifier_foundation.spawning.child import Spawn, prepare_spawn, spawn_request
from amplifier_foundation.spawning.life import run_spawn
from amplifier_foundation.spawning.own_loops import Fence, SessionLoops, run_in_own_loop

PATIENCE = 20


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionLoops]:
    """Loops with little patience."""
    monkeypatch.setattr(own_loops, "PATIENCE", 0.2)
    with SessionLoops() as made:
        yield made


@pytest.fixture
def said() -> list[str]:
    """The reports about the session."""
    return []


@pytest.fixture
def fence(said: list[str]) -> Fence:
    return Fence("session-1", said.append)


class Gate:
    """A call that blocks its thread until the test opens the gate."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def block(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE)

    async def wait_until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, PATIENCE)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_it_returns_and_raises_what_the_work_does_in_a_thread_of_its_own(
    loops: SessionLoops, fence: Fence
) -> None:
    async def name() -> int:
        return threading.get_ident()

    async def fail() -> None:
        raise ValueError("no")

    async def leave() -> None:
        sys.exit(3)

    first = await loops.run(name(), fence)
    assert first != threading.get_ident()
    with pytest.raises(ValueError, match="no"):
        await loops.run(fail(), fence)
    with pytest.raises(SystemExit):
        await loops.run(leave(), fence)
    assert await loops.run(name(), fence) == first  # an idle loop serves again


async def test_the_work_runs_in_the_context_of_its_caller(loops: SessionLoops, fence: Fence) -> None:
    from amplifier_foundation.spawning.turn_facts import asking

    async def ask() -> str:
        return asking.get()

    asking.set("a child")
    assert await loops.run(ask(), fence) == "a child"


async def test_two_sessions_block_at_once_and_hold_up_nothing(loops: SessionLoops, said: list[str]) -> None:
    gates = Gate(), Gate()

    async def block(gate: Gate) -> str:
        gate.block()
        return "done"

    async with asyncio.TaskGroup() as group:
        works = [group.create_task(loops.run(block(gate), Fence("s", said.append))) for gate in gates]
        for gate in gates:
            await gate.wait_until_reached()
        for gate in gates:
            gate.opened.set()
    assert [work.result() for work in works] == ["done", "done"]


async def test_a_cancelled_session_cleans_up_before_the_caller_goes_on(loops: SessionLoops, fence: Fence) -> None:
    steps: list[str] = []
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    running = asyncio.ensure_future(loops.run(work(), fence))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert steps == ["cleaned up"]
    assert not fence.is_closed


async def test_a_cancellation_is_the_one_that_the_caller_got(loops: SessionLoops, fence: Fence) -> None:
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.sleep(3600)

    running = asyncio.ensure_future(loops.run(work(), fence))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    running.cancel("by the scope of this test")  # anyio knows its scope by the message
    with pytest.raises(asyncio.CancelledError, match="by the scope of this test"):
        await running


async def test_a_session_that_is_cancelled_before_its_first_step_is_closed(
    loops: SessionLoops, fence: Fence, gate: Gate
) -> None:
    async def work() -> None: ...

    await loops.run(work(), fence)
    loops._idle[0].call(gate.block)  # the next one begins and is cancelled in one turn of its loop
    await gate.wait_until_reached()
    unbegun = work()
    running = asyncio.ensure_future(loops.run(unbegun, fence))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert inspect.getcoroutinestate(unbegun) == inspect.CORO_CLOSED


async def test_tasks_that_a_session_leaves_behind_end_with_it(loops: SessionLoops, fence: Fence) -> None:
    left: list[asyncio.Task[None]] = []

    async def work() -> None:
        left.append(asyncio.create_task(asyncio.sleep(3600)))

    await loops.run(work(), fence)
    assert left[0].cancelled()


async def test_a_session_that_ignores_its_cancellation_is_given_up_with_the_stack_of_its_tasks(
    loops: SessionLoops, fence: Fence, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_loops, "CLEANUP", 0.6)
    monkeypatch.setattr(own_loops, "CANCEL_EVERY", 0.05)
    begun, freed, ignored = threading.Event(), threading.Event(), []

    async def retry_for_ever() -> None:
        while not freed.is_set():
            begun.set()
            try:
                await asyncio.sleep(0.01 if ignored else 3600)
            except BaseException:
                ignored.append("a cancellation")

    async def work() -> None:
        await asyncio.gather(retry_for_ever())

    running = asyncio.ensure_future(loops.run(work(), fence))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [report] = said
    assert report.startswith("is given up, it ignores its cancellation: sleep (")
    assert "retry_for_ever" in report
    assert len(ignored) > 1
    with pytest.raises(SessionConflict):
        fence.check()
    assert loops.hanging == 1
    freed.set()
    await until(lambda: loops.hanging == 0)


async def test_a_cancellation_that_is_swallowed_once_comes_again(
    loops: SessionLoops, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_loops, "CANCEL_EVERY", 0.05)
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        with suppress(BaseException):
            await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    running = asyncio.ensure_future(loops.run(work(), fence))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not fence.is_closed


async def test_a_hanging_session_is_given_up_with_its_stack(
    loops: SessionLoops, fence: Fence, said: list[str], gate: Gate
) -> None:
    async def hang() -> None:
        gate.block()
        await asyncio.sleep(0)

    running = asyncio.ensure_future(loops.run(hang(), fence))
    await gate.wait_until_reached()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (fence.is_closed, loops.hanging) == (True, 1)
    assert said[-1].startswith("is given up, its thread hangs: wait (")
    assert "< block (" in said[-1]
    assert "< hang (" in said[-1]
    gate.opened.set()
    await until(lambda: loops.hanging == 0)


async def test_a_stall_is_reported_once_with_its_stack(
    loops: SessionLoops, fence: Fence, said: list[str], gate: Gate
) -> None:
    async def block() -> None:
        gate.block()

    running = asyncio.ensure_future(loops.run(block(), fence))
    await until(lambda: bool(said))
    looks = threading.Event()
    with loops.stalls.watch(asyncio.get_running_loop(), threading.get_ident(), lambda stall: looks.set()):
        assert looks.wait(PATIENCE)  # this loop stalls as long: the watch has looked at the other one, too
    gate.opened.set()
    await running
    [text] = said
    assert text.startswith("has blocked its thread for 1 s: wait (")
    assert "< block (" in text


async def test_a_given_up_session_stores_and_emits_nothing(
    loops: SessionLoops,
    said: list[str],
    store: DurableStore,
    plugins: Plugins,
    parent: AmplifierSession,
    make_bundle: Callable[..., PreparedBundle],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gate: Gate,
) -> None:
    (tmp_path / "hang.py").write_text(HANG)
    rules = [{"when": {"user": "hang"}, "call": {"tool": "hang", "input": {}}}]
    bundle = make_bundle(
        providers=[{"module": "provider-playbook", "config": {"rules": rules, "otherwise": {"say": "free"}}}],
        tools=[{"module": "tool-hang", "source": "./hang.py"}],
    )
    monkeypatch.setattr(threading, "tests_gate", gate, raising=False)
    spawn = Spawn(
        prepared=bundle,
        request=spawn_request(parent, bundle, "hang", bundle.mount_plan, "child-1", "child"),
        parent=parent,
        transcript=parent.transcript.fork(0),
        store=store,
        router=EventRouter(store),
        plugins=plugins,
    )
    await prepare_spawn(spawn)
    run_in_own_loop(spawn, loops, said.append)
    running = asyncio.ensure_future(run_spawn(spawn))
    await gate.wait_until_reached()
    running.cancel()
    outcome = await running
    assert (outcome.status, isinstance(spawn.error, asyncio.CancelledError)) == ("cancelled", True)
    before = await store.read("child-1")
    gate.opened.set()
    await until(lambda: loops.hanging == 0)
    assert await store.read("child-1") == before
    assert [event.name for event in await store.events()] == []
    with pytest.raises(SessionConflict, match="was given up"):
        await spawn.store.get("child-1")  # type: ignore[union-attr]  # it has one


HANG = """
import threading

class Hang:
    name, description, input_schema = "hang", "Hangs.", {"type": "object", "properties": {}}
    def __init__(self, coordinator):
        self.coordinator = coordinator
    async def execute(self, input):
        threading.tests_gate.block()
        await self.coordinator.get_capability("event.emit")("late", {})
        return "late"

async def mount(coordinator, config):
    await coordinator.mount("tools", Hang(coordinator))
"""


async def test_plugins_and_observers_are_called_in_the_serving_loop(
    loops: SessionLoops,
    said: list[str],
    store: DurableStore,
    plugins: Plugins,
    parent: AmplifierSession,
    make_bundle: Callable[..., PreparedBundle],
) -> None:
    threads: dict[str, int] = {}

    class Asked:
        @hookimpl
        async def amplifier_before_spawn(self, request: SpawnRequest) -> None:
            threads[f"spawn of {request.metadata['name']}"] = threading.get_ident()

    plugins.register(Asked(), "asked")
    rules = [{"when": {"user": "delegate"}, "call": {"tool": "delegate", "input": DELEGATED}}]
    bundle = make_bundle(
        providers=[{"module": "provider-playbook", "config": {"rules": rules, "otherwise": {"say": "done"}}}],
        tools=[{"module": "tool-delegate"}],
        agents={"helper": {"description": "Helps."}},
    )
    router = EventRouter(store)
    completed = router.subscribe(["session:completed"])
    spawn = Spawn(
        prepared=bundle,
        request=spawn_request(parent, bundle, "delegate", bundle.mount_plan, "child-1", "child"),
        parent=parent,
        transcript=parent.transcript.fork(0),
        store=store,
        router=router,
        plugins=plugins,
        observe=lambda session: threads.update(observer=threading.get_ident()),
    )
    await prepare_spawn(spawn)
    run_in_own_loop(spawn, loops, said.append)
    outcome = await run_spawn(spawn)
    assert (outcome.status, outcome.output) == ("completed", "done")
    assert set(threads) == {"spawn of child", "spawn of helper", "observer"}
    assert set(threads.values()) == {threading.get_ident()}
    async with asyncio.timeout(PATIENCE):
        assert (await anext(completed)).data["session_name"] == "helper"  # emitted in its own loop, read in this one


DELEGATED = {"agent": "helper", "instruction": "help"}
