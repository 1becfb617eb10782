"""Background sessions: what wakes them, what they do with it, and what happens when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import (
    AmplifierSession,
    SessionConflict,
    SessionNotFound,
    TriggerConfigError,
    TriggerContext,
    TriggerError,
    TriggerEvent,
    TriggerType,
    UnknownName,
    hookimpl,
)
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_core.testing import VirtualClock
from amplifier_foundation import (
    Activity,
    BackgroundSessionConfig,
    BackgroundSessionManager,
    EventRouter,
    PreparedBundle,
)

MakeBundle = Callable[..., PreparedBundle]

BARRIER = """
import asyncio
from amplifier_core import ChatResponse, ProviderInfo, TextBlock

class Barrier:
    name = "barrier"
    together = asyncio.Barrier({parties})
    def get_info(self): return ProviderInfo(id="barrier", display_name="Barrier")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        await self.together.wait()
        return ChatResponse(content=[TextBlock(text="together")])

async def mount(coordinator, config):
    await coordinator.mount("providers", Barrier())
"""


class FedTrigger:
    """A trigger that yields what a test feeds it."""

    made: list[FedTrigger]

    def bind(self, context: TriggerContext) -> None:
        self.context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        if "bad" in config:
            raise TriggerConfigError("trigger-fed", "bad", "cannot be")
        self.queue: asyncio.Queue[TriggerEvent | Exception | None] = asyncio.Queue()
        type(self).made.append(self)

    def feed(self, n: int, **fields: Any) -> None:
        self.queue.put_nowait(TriggerEvent(TriggerType.CUSTOM, "trigger-fed", data={"n": n}, **fields))

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        while (item := await self.queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    async def stop(self) -> None:
        self.queue.put_nowait(None)


class Bench:
    """A manager on a real store, with a fed trigger, a clock that stands still, and all that happened."""

    def __init__(
        self, manager: BackgroundSessionManager, store: DurableStore, router: EventRouter, clock: VirtualClock
    ):
        self.manager, self.store, self.router, self.clock = manager, store, router, clock
        self.seen: list[Activity] = []

    @property
    def trigger(self) -> FedTrigger:
        """The one made last by `start`; one is made before to check the configuration."""
        return FedTrigger.made[-1]

    def see(self, activity: Activity) -> None:
        self.seen.append(activity)

    def kinds(self) -> list[str]:
        return [activity.kind for activity in self.seen if activity.kind != "state"]

    async def until(self, *kinds: str, count: int = 1) -> None:
        async with asyncio.timeout(20):
            while sum(kind in kinds for kind in self.kinds()) < count:
                await asyncio.sleep(0.001)

    async def states(self) -> list[str]:
        return sorted(delivery.state for delivery in await self.store.deliveries())

    async def start(self, **fields: Any) -> str:
        triggers = fields.pop("triggers", [{"module": "trigger-fed"}])
        return await self.manager.start(BackgroundSessionConfig(name="lane", triggers=triggers, **fields))


OpenBench = Callable[..., Any]


@pytest.fixture
def open_bench(parent: AmplifierSession, store: DurableStore, plugins: Plugins, make_bundle: MakeBundle) -> OpenBench:
    FedTrigger.made = []

    class Feeds:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-fed", FedTrigger)

    plugins.register(Feeds(), "feeds")

    @asynccontextmanager
    async def bench(**sections: Any) -> AsyncIterator[Bench]:
        clock, router = VirtualClock(), EventRouter(store)
        manager = BackgroundSessionManager(
            parent, router, store, plugins, bundle=make_bundle("family", **sections), clock=clock
        )
        made = Bench(manager, store, router, clock)
        manager._engine.observers.append(made.see)
        async with manager:
            yield made

    return bench


async def test_an_event_becomes_a_session_whose_result_is_committed_and_told(
    open_bench: OpenBench, store: DurableStore
) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(on_complete_emit="work:done")
        news = bench.router.subscribe(["*"])
        bench.trigger.feed(1)
        await bench.until("completed")
        first, second = await anext(news), await anext(news)
        status = bench.manager.get_status()[session_id]
    assert session_id.startswith("bg-lane-")
    assert (status["status"], status["trigger_count"], status["restart_count"]) == ("running", 1, 0)
    [delivery] = await store.deliveries()
    [record] = [each for each in await store.sessions() if each.session_id == delivery.session_id]
    assert (delivery.state, delivery.attempts, delivery.lane) == ("done", 1, "family/lane")
    assert (record.status, record.parent_id, record.event_id) == ("completed", "parent-1", delivery.event.event_id)
    assert [first.name, second.name] == ["session:completed", "work:done"]
    assert second.data["trigger"] == {"n": 1}
    assert (second.cause, second.source_session_id) == (delivery.event.event_id, delivery.session_id)
    assert [event.event_id for event in await store.events()] == [first.event_id, second.event_id]
    assert bench.kinds() == ["armed", "accepted", "started", "session", "completed"]


async def test_what_the_session_is_asked_is_the_authors_word(open_bench: OpenBench, store: DurableStore) -> None:
    async with open_bench() as bench:
        await bench.start(
            instruction_template="number {n}",
            triggers=[{"module": "trigger-fed"}, {"module": "trigger-fed", "instruction_template": "other {n}"}],
        )
        first, second = FedTrigger.made[-2:]
        first.feed(1)
        second.feed(2)
        await bench.until("completed", count=2)
    prompts = [(await store.read(each.session_id or ""))[0]["content"] for each in await store.deliveries()]
    assert sorted(prompts) == ["number 1", "other 2"]


async def test_a_pool_handles_as_many_events_at_once_as_it_says(
    open_bench: OpenBench, tmp_path: Path, store: DurableStore
) -> None:
    (tmp_path / "barrier.py").write_text(BARRIER.format(parties=3))
    async with open_bench(providers=[{"module": "provider-barrier", "source": "./barrier.py"}]) as bench:
        await bench.start(pool_size=3)
        for n in range(6):
            bench.trigger.feed(n)
        await bench.until("completed", count=6)
    assert await bench.states() == ["done"] * 6


async def test_events_of_one_lane_with_one_key_are_one(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        for n in range(3):
            bench.trigger.feed(n, dedupe_key="same")
        await bench.until("duplicate", count=2)
        await bench.until("completed")
        assert await bench.states() == ["done"]


async def test_the_state_of_a_trigger_is_there_again_when_it_is_made_anew(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        assert bench.trigger.context.state == {}
        bench.trigger.feed(1, state={"cursor": 41})
        await bench.until("completed")
    async with open_bench() as bench:
        await bench.start()
        assert bench.trigger.context.state == {"cursor": 41}
        assert bench.trigger.context.name == "family/lane/trigger-fed#1"


async def test_a_failing_event_is_tried_again_later_and_then_set_aside_with_its_cause(
    open_bench: OpenBench, store: DurableStore
) -> None:
    async with open_bench(providers=[{"module": "provider-playbook", "config": {"rules": []}}]) as bench:
        await bench.start(max_attempts=3, on_error_emit="work:failed")
        bench.trigger.feed(1)
        for attempt in (1, 2):
            await bench.until("retried", count=attempt)
            await bench.clock.advance(60)
            bench.manager._find("lane").wake.set()
        await bench.until("dead")
    [delivery] = await store.deliveries()
    assert (delivery.state, delivery.attempts) == ("dead", 3)
    assert delivery.reason is not None
    assert "no rule" in delivery.reason
    assert [event.name for event in await store.events()] == ["session:error", "work:failed"]
    [record] = [each for each in await store.sessions() if each.session_id == delivery.session_id]
    assert record.status == "failed"
    assert bench.kinds().count("started") == 3


async def test_one_that_fails_leaves_its_neighbours_alone(open_bench: OpenBench) -> None:
    rules = [{"when": {"user": '"n": [02]'}, "say": "fine"}]
    async with open_bench(providers=[{"module": "provider-playbook", "config": {"rules": rules}}]) as bench:
        await bench.start(max_attempts=1)
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("completed", count=2)
        await bench.until("dead")
        assert await bench.states() == ["dead", "done", "done"]


async def test_a_template_that_cannot_be_filled_in_is_the_cause_of_a_dead_letter(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(instruction_template="{absent}", max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("dead")
        [delivery] = await bench.store.deliveries()
    assert "{absent}" in (delivery.reason or "")


async def test_a_chain_of_causes_that_is_too_long_is_refused_and_recorded(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(max_depth=2)
        bench.trigger.feed(1, depth=3)
        await bench.until("refused")
        [delivery] = await bench.store.deliveries()
    assert delivery.state == "refused"
    assert "max_depth (2)" in (delivery.reason or "")


async def test_sessions_that_wake_each_other_stop(open_bench: OpenBench) -> None:
    circle = [{"module": "trigger-session-event", "config": {"event_names": ["again"], "self_trigger": True}}]
    async with open_bench() as bench:
        await bench.start(triggers=circle, on_complete_emit="again", max_depth=4)
        await bench.manager.fire("lane")
        await bench.until("refused")
        assert await bench.states() == ["done"] * 5 + ["refused"]


async def test_plugins_may_skip_an_event_and_see_what_came_of_the_others(
    open_bench: OpenBench, plugins: Plugins
) -> None:
    handled: list[str] = []

    class Picky:
        @hookimpl
        async def amplifier_before_trigger(self, event: TriggerEvent) -> None:
            if event.data.get("n") == 1:
                raise TriggerError("picky", "not this one")

        @hookimpl
        async def amplifier_after_trigger(self, delivery: Any) -> None:
            handled.append(delivery.state)

    plugins.register(Picky(), "picky")
    async with open_bench() as bench:
        await bench.start()
        bench.trigger.feed(1)
        bench.trigger.feed(2)
        await bench.until("completed")
        assert await bench.states() == ["done", "refused"]
    assert handled == ["done"]


async def test_a_trigger_that_fails_is_made_anew_after_a_pause(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        broken = bench.trigger
        broken.queue.put_nowait(OSError("the disk is gone"))
        await bench.until("trigger_failed")
        assert bench.manager.get_status(session_id)["reason"] == "the disk is gone"
        await bench.clock.advance(60)
        await bench.until("armed", count=2)
        assert bench.trigger is not broken
        bench.trigger.feed(1)
        await bench.until("completed")
        status = bench.manager.get_status(session_id)
    assert (status["status"], status["reason"], status["restart_count"]) == ("running", "", 1)


async def test_a_trigger_that_keeps_failing_is_given_up_and_the_reason_stays(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(max_restarts=2, restart_window=10_000)
        for failure in range(3):
            bench.trigger.queue.put_nowait(OSError("still gone"))
            await bench.until("trigger_failed", count=failure + 1)
            await bench.clock.advance(60)
            if failure < 2:
                await bench.until("armed", count=failure + 2)
        status = bench.manager.get_status(session_id)
        assert (status["status"], status["reason"], status["restart_count"]) == ("failed", "still gone", 2)
        assert await bench.manager.fire("lane")
        await bench.until("completed")


async def test_restarts_are_counted_in_a_window_not_over_a_lifetime(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(max_restarts=1, restart_window=60)
        for failure in range(4):
            bench.trigger.queue.put_nowait(OSError("a hiccup"))
            await bench.until("trigger_failed", count=failure + 1)
            await bench.clock.advance(3600)
            await bench.until("armed", count=failure + 2)
        assert bench.manager.get_status(session_id)["restart_count"] == 4


async def test_what_was_interrupted_goes_on_at_the_next_start(open_bench: OpenBench, store: DurableStore) -> None:
    slow = [{"module": "provider-playbook", "config": {"delay_ms": 60_000, "otherwise": {"say": "late"}}}]
    quick = [{"module": "provider-playbook", "config": {"otherwise": {"say": "done: {prompt}"}}}]
    async with open_bench(providers=slow) as bench:
        session_id = await bench.start(instruction_template="number {n}")
        bench.trigger.feed(1)
        await bench.until("session")
        while not await store.read(bench.manager.get_status(session_id)["running"][0]):
            await asyncio.sleep(0)
        assert await bench.manager.stop(session_id, grace=0)
    [delivery] = await store.deliveries()
    assert (delivery.state, delivery.reason) == ("pending", "interrupted")
    assert (await store.get(delivery.session_id or "")).status == "interrupted"

    async with open_bench(providers=quick) as bench:
        await bench.start()
        await bench.until("completed")
    [again] = await store.deliveries()
    assert (again.state, again.session_id) == ("done", delivery.session_id)
    messages = await store.read(again.session_id or "")
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[0]["content"] == "number 1"


async def test_an_event_whose_process_keeps_dying_is_set_aside(open_bench: OpenBench, store: DurableStore) -> None:
    event = TriggerEvent(TriggerType.MANUAL, "trigger-manual")
    async with open_bench() as bench:
        project = bench.manager._project
        await store.offer(project, "family/lane", "t", event, now=bench.clock.now())
        for _ in range(2):
            await store.claim(
                project, "family/lane", owner="dead", lease=60, session_id="lane-x", now=bench.clock.now()
            )
            assert await store.release(project) == 1
        await bench.start(max_attempts=2)
        await bench.until("dead")
        [delivery] = await store.deliveries()
    assert delivery.state == "dead"
    assert "the process ended 2 times" in (delivery.reason or "")


async def test_names_are_unique_and_bad_triggers_are_refused_at_the_start(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        with pytest.raises(SessionConflict, match="'lane' runs already"):
            await bench.start()
    async with open_bench() as bench:
        with pytest.raises(TriggerConfigError, match="bad: cannot be"):
            await bench.start(triggers=[{"module": "trigger-fed", "config": {"bad": 1}}])
        with pytest.raises(UnknownName, match="trigger-nowhere"):
            await bench.start(triggers=[{"module": "trigger-nowhere"}])
        assert bench.manager.get_status() == {}
        with pytest.raises(SessionNotFound):
            await bench.manager.fire("lane")


EMITS = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock

class Emitting:
    name = "emitting"
    def __init__(self, emit): self.emit = emit
    def get_info(self): return ProviderInfo(id="emitting", display_name="Emitting")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        await self.emit("again", {})
        return ChatResponse(content=[TextBlock(text="emitted")])

async def mount(coordinator, config):
    emit = coordinator.get_capability("event.emit")
    if emit is not None:
        await coordinator.mount("providers", Emitting(emit))
"""


async def test_what_a_session_emits_itself_continues_the_chain(open_bench: OpenBench, tmp_path: Path) -> None:
    (tmp_path / "emits.py").write_text(EMITS)
    circle = [{"module": "trigger-session-event", "config": {"event_names": ["again"], "self_trigger": True}}]
    async with open_bench(providers=[{"module": "provider-emits", "source": "./emits.py"}]) as bench:
        await bench.start(triggers=circle, max_depth=3)
        await bench.manager.fire("lane")
        await bench.until("refused")
        await bench.until("completed", count=4)
        assert await bench.states() == ["done"] * 4 + ["refused"]


async def test_an_observer_that_fails_changes_nothing(open_bench: OpenBench, caplog: pytest.LogCaptureFixture) -> None:
    def fail(activity: Activity) -> None:
        raise ValueError("observer")

    async with open_bench() as bench:
        bench.manager._engine.observers.insert(0, fail)
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed")
    assert "an observer of background sessions failed" in caplog.text


async def test_a_store_that_cannot_be_used_is_waited_for_and_told(open_bench: OpenBench, store: DurableStore) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        await store.close()
        bench.manager._find("lane").wake.set()
        await bench.until("store_failed")
        status = bench.manager.get_status(session_id)
    assert status["status"] == "backing_off"
    assert "closed" in status["reason"]


async def test_the_end_of_the_parent_stops_what_shall_stop_with_it(
    open_bench: OpenBench, parent: AmplifierSession
) -> None:
    async with open_bench() as bench:
        await bench.start()
        kept = await bench.manager.start(BackgroundSessionConfig(name="kept", stop_on_parent_stop=False))
        await parent.cleanup()
        assert list(bench.manager.get_status()) == [kept]


async def test_stopping_is_prompt_and_leaves_no_task(open_bench: OpenBench) -> None:
    tasks = asyncio.all_tasks()
    async with open_bench() as bench:
        session_id = await bench.start(pool_size=4)
        assert len(asyncio.all_tasks()) > len(tasks)
        assert await bench.manager.stop(session_id)
        assert not await bench.manager.stop(session_id)
        assert asyncio.all_tasks() == tasks
        assert bench.manager.get_status() == {}
