"""The manager as the seed document has it: two arguments suffice, and the rest has defaults."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, SpawnRefused, hookimpl
from amplifier_core.documents import DocumentChange, DocumentStore
from amplifier_core.errors import BundleValidationError, DocumentConflict
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_core.testing.store_checks import DOCUMENT_CHECKS
from amplifier_foundation.background import BackgroundSessionConfig, BackgroundSessionManager, BackgroundSessionState
from amplifier_foundation.background.draining import drain
from amplifier_foundation.background.partial_store import complete_store
from amplifier_foundation.events import EventRouter, SessionEvent
from amplifier_foundation.triggers import TriggerEvent, TriggerSource, TriggerType
from tests.foundation.shelf import Shelf

OpenBench = Callable[..., Any]
PATIENCE = 20
WORKER = """---
bundle: {name: worker}
session: {orchestrator: loop-basic, context: context-simple}
providers: [{module: provider-playbook, config: {otherwise: {say: "You said: {prompt}"}}}]
---
"""


class Ticks:
    """A trigger of the program's own, as the seed writes one: it has no `bind`."""

    router: EventRouter | None = None

    def configure(self, config: Mapping[str, Any]) -> None:
        self.count = config["count"]
        self.stopped = asyncio.Event()

    def set_event_router(self, router: EventRouter) -> None:
        self.router = router

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        for tick in range(self.count):
            yield TriggerEvent(TriggerType.TIMER, "timer", data={"tick": tick})
        await self.stopped.wait()

    async def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def worker(tmp_path: Path) -> str:
    (tmp_path / "bundle.md").write_text(WORKER)
    return str(tmp_path / "bundle.md")


def ticking(worker: str, count: int = 1, **fields: Any) -> BackgroundSessionConfig:
    triggers = [{"module": "trigger-ticks", "config": {"count": count}}]
    return BackgroundSessionConfig(name="test-bg", bundle=worker, triggers=triggers, **fields)


@asynccontextmanager
async def completions(router: EventRouter, *names: str) -> AsyncIterator[Callable[[], Any]]:
    async with router.subscribe(names or ["session:completed"]) as reader, asyncio.timeout(PATIENCE):
        yield lambda: anext(reader)


async def test_parent_and_router_suffice(parent: AmplifierSession, worker: str) -> None:
    loaded: list[dict[str, Any]] = []
    triggers: list[Ticks] = []

    def load_trigger(config: dict[str, Any]) -> TriggerSource:
        loaded.append(config)
        triggers.append(Ticks())
        return triggers[-1]

    router = EventRouter()
    manager = BackgroundSessionManager(parent_session=parent, event_router=router, trigger_loader=load_trigger)
    async with completions(router) as completed:
        session_id = await manager.start(ticking(worker))
        assert session_id.startswith("bg-test-bg-")
        assert manager.get_status()[session_id]["status"] == "running"
        event: SessionEvent = await completed()
    assert manager.get_status()[session_id]["trigger_count"] == 1
    assert event.data["output"] == "You said: Timer triggered (tick 0)"
    assert event.data["duration"] >= 0
    assert event.data["trigger_id"] == event.cause
    assert loaded[0] == {"module": "trigger-ticks", "config": {"count": 1}}
    assert {trigger.router for trigger in triggers} == {router}
    await manager.stop(session_id)
    assert manager.get_status()[session_id]["status"] == "stopped"
    assert not isinstance(manager.get_status()[session_id], BackgroundSessionState)


async def test_a_small_storage_keeps_the_sessions_and_the_rest_is_said_to_be_in_memory(
    parent: AmplifierSession, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    shelf, router = Shelf(), EventRouter()
    manager = BackgroundSessionManager(parent, router, shelf, lambda config: Ticks())
    async with manager, completions(router) as completed:
        await manager.start(ticking(worker, count=2))
        ids = [(await completed()).data["session_id"] for _ in range(2)]
    assert "Shelf keeps no inbox" in caplog.text
    assert {shelf.kept[each][1]["status"] for each in ids} == {"completed"}
    assert [message["role"] for message in shelf.kept[ids[0]][0]] == ["user", "assistant"]


async def test_documents_are_kept_in_memory_beside_a_small_storage() -> None:
    for check in DOCUMENT_CHECKS:
        if "with_a_refused_change" not in check.__name__:  # type: ignore[attr-defined]  # a record is no part of this store
            await check(complete_store(Shelf()))
    store = complete_store(Shelf())
    assert isinstance(store, DocumentStore)
    await store.create(SessionRecord("s", name="before"))
    await store.enqueue("/p", "queue", "t", TriggerEvent(TriggerType.CUSTOM, "test"))
    claimed = await store.claim("/p", "queue", owner="me", lease=60, session_id="s")
    assert claimed is not None
    refused = [DocumentChange("/p", "issues", "1", {}, 7)]
    with pytest.raises(DocumentConflict):
        await store.commit(claimed, session={"name": "after"}, documents=refused)
    assert (await store.get("s")).name == "before"
    await store.commit(claimed, session={"name": "after"}, documents=[DocumentChange("/p", "issues", "1", {})])
    assert (await store.get("s")).name == "after"
    assert await store.document("/p", "issues", "1") is not None


async def test_a_failure_is_recorded_in_a_small_storage_too(parent: AmplifierSession, tmp_path: Path) -> None:
    (tmp_path / "bundle.md").write_text(WORKER.replace("otherwise: {say:", "rules: [], otherwise: {nothing:"))
    shelf, router = Shelf(), EventRouter()
    manager = BackgroundSessionManager(parent, router, shelf, lambda config: Ticks())
    async with manager, completions(router, "session:error") as failed:
        await manager.start(ticking(str(tmp_path / "bundle.md"), max_attempts=1))
        event = await failed()
    assert shelf.kept[event.data["session_id"]][1]["status"] == "failed"


async def test_one_without_any_bundle_is_told_to_name_one(parent: AmplifierSession) -> None:
    async with BackgroundSessionManager(parent, EventRouter()) as manager:
        with pytest.raises(BundleValidationError, match="'alone' has no bundle"):
            await manager.start(BackgroundSessionConfig(name="alone"))


async def test_session_events_wake_on_a_plain_router_and_a_source_may_be_a_name(
    parent: AmplifierSession, worker: str, plugins: Plugins
) -> None:
    follows = {"event_names": ["session:completed"], "source_sessions": ["test-bg"]}
    chained = BackgroundSessionConfig(
        name="chained", bundle=worker, triggers=[{"module": "trigger-session-event", "config": follows}]
    )
    first = BackgroundSessionConfig(name="test-bg", bundle=worker)
    other = BackgroundSessionConfig(name="other", bundle=worker)
    router = EventRouter()
    async with BackgroundSessionManager(parent, router, plugins=plugins) as manager:
        async with completions(router) as completed:
            for config in (chained, first, other):
                await manager.start(config)
            await manager.fire("other")
            assert (await completed()).data["session_name"] == "other"
            await manager.fire("test-bg")
            assert [(await completed()).data["session_name"] for _ in range(2)] == ["test-bg", "chained"]
        assert {row["name"]: row["trigger_count"] for row in manager.get_status().values()}["chained"] == 1


# mistakes and refusals


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        pytest.param({"providers": [{"module": "provider-nowhere"}]}, "No providers mounted", id="no provider"),
        pytest.param({"session": {"orchestrator": "loop-nowhere"}}, "loop-nowhere", id="unknown module"),
    ],
)
async def test_a_mistake_of_the_configuration_is_given_up_at_once_with_its_reason(
    open_bench: OpenBench, sections: dict[str, Any], reason: str
) -> None:
    async with open_bench(**sections) as bench:
        await bench.start(max_attempts=5)
        bench.trigger.feed(1)
        await bench.until("dead")
        [dead] = await bench.deliveries()
        assert (dead.state, dead.attempts) == ("dead", 1)
        assert reason in dead.reason


async def test_a_template_without_its_name_is_given_up_at_once(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(max_attempts=5, instruction_template="{tik}")
        bench.trigger.feed(1)
        await bench.until("dead")
        assert [(each.state, each.attempts) for each in await bench.deliveries()] == [("dead", 1)]


def lack_descriptor() -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def lack_thread() -> None:
    before = threading.stack_size(1 << 46)
    try:
        threading.Thread(target=print).start()
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize(
    ("lack", "remedy"),
    [
        (lack_descriptor, "Raise the limit: ulimit -n"),
        (lack_thread, "raise the limits: ulimit -u, ulimit -v, or those of the container"),
    ],
)
async def test_a_machine_at_its_limits_counts_no_attempt(
    open_bench: OpenBench, plugins: Plugins, lack: Callable[[], None], remedy: str
) -> None:
    class Exhausted:
        free = False

        async def run(self, request: Any, make_session: Any) -> str:
            if Exhausted.free:
                return "done"
            try:
                lack()
            except (OSError, RuntimeError) as error:
                raise ConnectionError("the model cannot be reached") from error

    class Offers:
        @hookimpl
        def amplifier_register_runner(self, register: Any) -> None:
            register("runner-exhausted", Exhausted)

    plugins.register(Offers(), "exhausted")
    async with open_bench() as bench:
        await bench.start(max_attempts=1, runner="runner-exhausted")
        bench.trigger.feed(1)
        await bench.until("retried", count=5, step=5)
        status = bench.manager.get_status("queue")
        assert status["status"] == "degraded"
        assert "the model cannot be reached. " in status["reason"]
        assert status["reason"].endswith(remedy)
        Exhausted.free = True
        await bench.until("completed", step=5)
        assert bench.statuses() == {"queue": "running"}
        assert [(each.state, each.attempts) for each in await bench.deliveries()] == [("done", 1)]


class Refusing:
    """A plugin that refuses sessions while a reason is set."""

    refusal: SpawnRefused | None = None
    asked = 0

    @hookimpl
    async def amplifier_before_spawn(self, request: Any) -> None:
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal


async def test_a_refused_session_is_postponed_and_counts_no_attempt(open_bench: OpenBench, plugins: Plugins) -> None:
    quiet_hours = Refusing()
    quiet_hours.refusal = SpawnRefused("parent-1", "it is night")
    plugins.register(quiet_hours, "quiet-hours")
    async with open_bench() as bench:
        await bench.start(max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("postponed", count=7, step=5)
        assert {delivery.attempts for delivery in bench.told("postponed", "delivery")} == {1}
        quiet_hours.refusal = None
        await bench.until("completed", step=5)
        assert [(each.state, each.attempts) for each in await bench.deliveries()] == [("done", 1)]


async def test_a_refusal_until_a_time_is_not_asked_about_before(open_bench: OpenBench, plugins: Plugins) -> None:
    quiet_hours = Refusing()
    plugins.register(quiet_hours, "quiet-hours")
    async with open_bench() as bench:
        morning = bench.clock.now() + timedelta(minutes=8)
        quiet_hours.refusal = SpawnRefused("parent-1", "it is night", not_before=morning)
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("postponed")
        await bench.holds(lambda: not bench.manager.get_status("queue")["running"])
        assert await bench.manager.is_idle()
        quiet_hours.refusal = None
        await bench.clock.advance(7 * 60)
        assert quiet_hours.asked == 1
        await bench.clock.advance(60)
        await bench.until("completed")


async def test_a_final_refusal_skips_the_event(open_bench: OpenBench, plugins: Plugins) -> None:
    refusing = Refusing()
    plugins.register(refusing, "refusing")
    refusing.refusal = SpawnRefused("parent-1", "never", final=True)
    async with open_bench() as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("refused")
        [skipped] = await bench.deliveries()
        assert (skipped.state, "never" in skipped.reason) == ("skipped", True)
        assert not bench.manager.has_trouble


# an end when everything is handled


class Polling:
    """A trigger that polls slowly: it is ready after its first poll, and stops late."""

    polled: asyncio.Event
    last_words: bool

    def configure(self, config: Mapping[str, Any]) -> None:
        self.stopping = asyncio.Event()
        self.is_ready = asyncio.Event()

    async def ready(self) -> None:
        await self.is_ready.wait()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        await self.polled.wait()
        yield TriggerEvent(TriggerType.CUSTOM, "trigger-polling", data={"n": 1})
        self.is_ready.set()
        await self.stopping.wait()
        yield TriggerEvent(TriggerType.CUSTOM, "trigger-polling", data={"n": 2})

    async def stop(self) -> None:
        self.stopping.set()


async def test_the_end_waits_for_a_slow_poll_and_for_the_last_event_of_a_stopped_trigger(
    open_bench: OpenBench, plugins: Plugins
) -> None:
    class Offers:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-polling", Polling)

    plugins.register(Offers(), "polling")
    Polling.polled = asyncio.Event()
    async with open_bench() as bench:
        starting = asyncio.create_task(bench.start(triggers=[{"module": "trigger-polling"}]))
        await bench.holds(lambda: bool(bench.manager.get_status()))
        assert not await bench.manager.is_idle(caught_up=True)
        Polling.polled.set()
        await starting
        assert await drain([bench.manager])
        assert await bench.numbers() == [1, 2]


async def test_the_end_says_that_an_event_was_given_up(open_bench: OpenBench) -> None:
    async with open_bench(providers=[{"module": "provider-nowhere"}]) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("dead")
        assert not await drain([bench.manager])
        assert await bench.states() == ["dead"]


async def test_a_chain_of_events_is_followed_to_its_end(open_bench: OpenBench, store: DurableStore) -> None:
    async with open_bench() as bench:
        await bench.start(on_complete_emit="first:done")
        fed = bench.trigger
        await bench.start(name="next", triggers=[{"type": "session_event", "config": {"event_names": ["first:*"]}}])
        fed.feed(1)
        assert await drain([bench.manager])
        assert await bench.states() == ["done", "done"]


async def test_the_end_waits_no_longer_where_every_trigger_knows_that_it_is_caught_up(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_foundation.background.draining.QUIET", 3600.0)
    after = {"type": "session_event", "config": {"event_names": ["first:*"]}}
    async with open_bench() as bench, asyncio.timeout(PATIENCE):
        await bench.start(triggers=[{"type": "manual"}], on_complete_emit="first:done")
        await bench.start(name="next", triggers=[after])
        await bench.manager.fire("queue", {"n": 1})
        assert await drain([bench.manager])
        assert await bench.states() == ["done", "done"]


class Ticking:
    """A trigger by a clock that is quicker than the turns: each tick brings the next one."""

    fires_by_clock = True
    turns: asyncio.Semaphore

    def configure(self, config: Mapping[str, Any]) -> None:
        self.ticks = 0
        self.is_stopped = False

    def caught_up(self) -> bool:
        return self.ticks > 0

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        while not self.is_stopped:
            yield TriggerEvent(TriggerType.TIMER, "trigger-ticking", data={"n": self.ticks})
            self.ticks += 1
            await self.turns.acquire()

    async def stop(self) -> None:
        self.is_stopped = True
        self.turns.release()


async def test_the_end_waits_for_no_tick_that_comes_meanwhile(open_bench: OpenBench, plugins: Plugins) -> None:
    class Offers:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-ticking", Ticking)

    plugins.register(Offers(), "ticking")
    Ticking.turns = asyncio.Semaphore(0)
    async with open_bench() as bench, asyncio.timeout(PATIENCE):
        bench.manager._engine.observers.append(
            lambda activity: Ticking.turns.release() if activity.kind == "started" else None
        )
        await bench.start(triggers=[{"module": "trigger-ticking"}])
        assert await drain([bench.manager])
        assert set(await bench.states()) == {"done"}
