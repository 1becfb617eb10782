"""Triggers that fail, stores that cannot be written, and workers that wake up too late: told, and nothing is lost."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import Any, cast

import pytest

from amplifier_core import (
    AmplifierSession,
    PollingTrigger,
    StoreUnavailable,
    TriggerConfigError,
    TriggerContext,
    TriggerError,
    TriggerEvent,
    TriggerType,
    hookimpl,
)
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_core.testing import VirtualClock
from amplifier_foundation import BackgroundSessionManager, EventRouter, PreparedBundle, load_bundle
from amplifier_foundation.background import starting as starting_module
from amplifier_foundation.background import trigger_making
from amplifier_foundation.background import watch as watch_module
from amplifier_foundation.background.tasks import given_up
from amplifier_foundation.sessions.history import turn_starts

from .bench import FedTrigger, events_of, raised_by_feed

pytestmark = pytest.mark.slow

OpenBench = Callable[..., Any]
Held = list[dict[str, Any]]

MISTAKEN = """---
bundle: {name: family}
background_sessions:
  - name: queue
    triggers:
      - {module: trigger-mistaken}
---
"""

# triggers


async def test_restart_on_failure(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        broken = bench.trigger
        broken.fail("the disk is gone")
        await bench.until("trigger_failed")
        row = bench.manager.get_status(session_id)
        assert (row["status"], row["reason"]) == ("degraded", raised_by_feed("the disk is gone"))
        await bench.until("armed", count=2, step=1)
        assert bench.trigger is not broken
        bench.trigger.feed(1)
        await bench.until("completed")
        status = bench.manager.get_status(session_id)
    assert (status["status"], status["reason"], status["restart_count"]) == ("running", "", 1)


async def test_a_failed_trigger_is_an_event_that_others_can_follow(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        await bench.start(name="alarm", triggers=[{"type": "session_event", "config": {"event_names": ["trigger:*"]}}])
        FedTrigger.made[-1].fail("the disk is gone")
        await bench.until("completed")
        told, _ = await events_of(bench.store)
    assert (told.name, told.source_session_id) == ("trigger:error", session_id)
    assert told.data == {
        "session_id": session_id,
        "session_name": "queue",
        "queue": "family/queue",
        "project": told.data["project"],
        "trigger": "family/queue/trigger-fed#1",
        "module": "trigger-fed",
        "error": raised_by_feed("the disk is gone"),
        "error_type": "OSError",
        "next_try": told.data["next_try"],
    }
    assert told.data["next_try"]


async def test_a_trigger_that_goes_on_failing_is_tried_again_for_good(
    open_bench: OpenBench, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(max_restarts=2, restart_window=10_000)
        for failure in range(1, 31):
            bench.trigger.fail("still gone")
            await bench.until("trigger_failed", count=failure)
            row = bench.manager.get_status(session_id)
            assert (row["status"], row["reason"]) == ("degraded", raised_by_feed("still gone"))
            pause = bench.told("trigger_failed", "next_try")[-1] - bench.clock.now()
            assert pause.total_seconds() <= 60
            await bench.until("armed", count=failure + 1, step=5)
        assert "trigger family/queue/trigger-fed#1 failed; tried again in" in caplog.text
        row = bench.manager.get_status(session_id)
        assert (row["status"], row["next_try"], row["restart_count"]) == ("running", None, 30)


async def test_the_pauses_of_a_trigger_grow_and_begin_small_again_after_a_good_time(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        bench.manager._engine.random.uniform = lambda low, high: high  # type: ignore[method-assign]
        bench.manager._engine.poll = 1e6
        await bench.start(restart_window=100)
        pauses = []
        for failure in range(1, 11):
            if failure == 10:
                await bench.clock.advance(101)
            bench.trigger.fail("gone")
            await bench.until("trigger_failed", count=failure)
            pauses.append((bench.told("trigger_failed", "next_try")[-1] - bench.clock.now()).total_seconds())
            await bench.until("armed", count=failure + 1, step=1)
        assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 0.5]


async def test_a_mistake_of_the_configuration_has_failed_with_its_line_and_is_not_tried_again(
    open_bench: OpenBench, plugins: Plugins, tmp_path: Path, parent: AmplifierSession, store: DurableStore
) -> None:
    class Mistaken(FedTrigger):
        async def watch(self) -> AsyncIterator[TriggerEvent]:
            raise TriggerConfigError("trigger-mistaken", "port", "cannot be")
            yield

    class Offers:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-mistaken", Mistaken)

    plugins.register(Offers(), "mistaken")
    (tmp_path / "bundle.md").write_text(MISTAKEN)
    bundle = await (await load_bundle(str(tmp_path / "bundle.md"))).prepare()
    clock = VirtualClock()
    async with BackgroundSessionManager(
        parent, EventRouter(store), store, plugins=plugins, bundle=bundle, clock=clock
    ) as manager:
        await manager.start(bundle.bundle.background_sessions[0])
        async with asyncio.timeout(60):
            while (row := manager.get_status("queue"))["status"] != "failed":
                await asyncio.sleep(0.001)
        await clock.advance(3600)
        assert row["reason"].endswith("bundle.md:6:18: trigger-mistaken: port: cannot be")
        assert (row["restart_count"], row["next_try"]) == (0, None)


async def test_a_trigger_that_cannot_be_made_is_tried_again_and_the_others_begin(
    open_bench: OpenBench, plugins: Plugins, tmp_path: Path
) -> None:
    key = tmp_path / "acme.key"

    class Keyed(FedTrigger):
        def __init__(self) -> None:
            key.read_text(encoding="utf-8")
            super().__init__()

    class Offers:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-keyed", Keyed)

    plugins.register(Offers(), "keyed")
    async with open_bench() as bench:
        keyed = await bench.start(name="keyed", triggers=[{"module": "trigger-keyed"}])
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed")
        await bench.until("trigger_failed")
        reason = bench.manager.get_status(keyed)["reason"]
        assert reason.startswith("trigger-keyed: this program cannot make it: FileNotFoundError: ")
        key.write_text("1234", encoding="utf-8")
        await bench.holds(lambda: bench.manager.get_status(keyed)["status"] == "running", step=1.0)


async def test_no_restart_when_none_is_wanted(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(restart_on_failure=False)
        bench.trigger.fail("gone")
        await bench.until("trigger_failed")
        assert bench.manager.get_status(session_id)["status"] == "failed"
        assert bench.told("trigger_failed", "restarts") == [False]


async def test_a_trigger_that_ends_by_itself_has_failed_and_is_made_anew(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        await bench.trigger.stop()
        await bench.until("trigger_failed")
        assert "it ended without being stopped" in bench.told("trigger_failed", "error")[0]
        await bench.until("armed", count=2, step=1)


async def test_a_stopped_session_is_not_revived_by_a_restart_that_was_to_come(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        bench.trigger.fail("gone")
        await bench.until("trigger_failed")
        made = len(FedTrigger.made)
        assert await bench.manager.stop(session_id)
        await bench.clock.advance(3600)
        assert (len(FedTrigger.made), bench.statuses()) == (made, {"queue": "stopped"})


async def test_one_failed_trigger_leaves_the_others_of_its_session_alone(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(triggers=[{"module": "trigger-fed"}] * 2, max_restarts=0)
        broken, sound = FedTrigger.made[-2:]
        broken.fail("gone")
        await bench.until("trigger_failed")
        sound.feed(1)
        await bench.until("completed")
        assert bench.manager.get_status(session_id)["status"] == "failed"


async def test_a_hundred_that_fail_come_back(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        bench.manager._engine.poll = 1e6
        for number in range(100):
            await bench.start(name=f"queue-{number}")
        for failures in (1, 2, 3):
            for trigger in FedTrigger.made[-100:]:
                trigger.fail("gone")
            await bench.until("trigger_failed", count=100 * failures)
            await bench.until("armed", count=100 * (failures + 1), step=5)
        rows = bench.manager.get_status().values()
        assert Counter((row["status"], row["restart_count"]) for row in rows) == {("running", 3): 100}


class Stubborn:
    """A trigger that does what its configuration says is wrong with it."""

    release: asyncio.Event
    made: list[Stubborn]

    def bind(self, context: TriggerContext) -> None:
        self.context = context
        self.made.append(self)

    def configure(self, config: Mapping[str, Any]) -> None:
        self.fault = config.get("fault")
        if (name := config.get("plain")) is not None:
            setattr(self, name, lambda: None)

    async def ready(self) -> None:
        if self.fault == "late":
            await self.release.wait()
        if self.fault == "unready":
            raise OSError("no such device")

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        while True:
            try:
                await asyncio.sleep(3600 if self.fault != "wrong" else 0)
            except asyncio.CancelledError:
                if self.fault != "swallows":
                    raise
                while not self.release.is_set():
                    with suppress(asyncio.CancelledError):
                        await self.release.wait()
                yield TriggerEvent(TriggerType.CUSTOM, "trigger-stubborn", data={"n": 1})
            yield {"not": "an event"}  # type: ignore[misc]

    async def stop(self) -> None:
        if self.fault == "hangs":
            await asyncio.sleep(3600)
        if self.fault == "raises":
            raise OSError("it cannot be stopped")


@pytest.fixture
def stubborn(plugins: Plugins) -> Callable[..., dict[str, Any]]:
    """Return the fields of a background session whose trigger has a fault."""
    Stubborn.release, Stubborn.made = asyncio.Event(), []

    class Offers:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-stubborn", Stubborn)

    plugins.register(Offers(), "stubborn")

    def fields(fault: str, **config: str) -> dict[str, Any]:
        return {"triggers": [{"module": "trigger-stubborn", "config": {"fault": fault, **config}}]}

    return fields


async def test_a_trigger_that_is_not_armed_in_time_is_named_until_it_is(
    open_bench: OpenBench,
    stubborn: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(starting_module, "ARMING", 0.01)
    monkeypatch.setattr(starting_module, "NAME_AFTER", 0.005)
    monkeypatch.setattr(watch_module, "ENDING", 0.01)
    async with open_bench() as bench:
        session_id = await bench.start(**stubborn("late"))
        row = bench.manager.get_status(session_id)
        assert (row["status"], row["reason"]) == ("running", "not armed after 0.01 s: trigger-stubborn")
        waits, late = caplog.messages
        assert waits == ("background session 'queue' waits for the ready() of trigger-stubborn, as `up --once` does")
        assert late == "background session 'queue': not armed after 0.01 s: trigger-stubborn"
        Stubborn.release.set()
        await bench.until("armed")
        assert bench.manager.get_status(session_id)["reason"] == ""


async def test_a_trigger_that_cannot_be_armed_is_tried_again(
    open_bench: OpenBench, stubborn: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bench() as bench:
        monkeypatch.setattr(watch_module, "ENDING", 0.01)
        session_id = await bench.start(**stubborn("unready"))
        await bench.until("trigger_failed", count=4, step=1)
        row = bench.manager.get_status(session_id)
        assert row["status"] == "degraded"
        assert re.fullmatch(rf"OSError: no such device \({re.escape(__file__)}:\d+\)", row["reason"])


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("hangs", ["its stop took longer than 0.01 s"]),
        ("raises", [rf"OSError: it cannot be stopped \({re.escape(__file__)}:\d+\)"]),
        ("plain", ["TypeError: its stop returns NoneType: write `async def stop`"]),
        ("ignores", []),
    ],
)
async def test_a_trigger_that_does_not_stop_is_left_behind_and_told_once_with_its_name(
    fault: str,
    told: list[str],
    open_bench: OpenBench,
    stubborn: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(trigger_making, "STOP_TIME_LIMIT", 0.01)
    monkeypatch.setattr(watch_module, "ENDING", 0.01)
    tasks = asyncio.all_tasks()
    async with open_bench() as bench:
        session_id = await bench.start(**stubborn(fault, **({"plain": "stop"} if fault == "plain" else {})))
        assert await bench.manager.stop(session_id)
        assert asyncio.all_tasks() == tasks
    lines = [message for message in caplog.messages if "did not stop" in message]
    assert len(lines) == len(told)
    for pattern, line in zip(told, lines, strict=True):
        assert re.fullmatch(rf"trigger family/queue/trigger-stubborn#1 did not stop: {pattern}", line)


async def test_a_trigger_whose_ready_is_no_coroutine_is_told_how_to_write_it(
    open_bench: OpenBench, stubborn: Callable[..., dict[str, Any]]
) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(**stubborn("", plain="ready"))
        await bench.until("trigger_failed")
        reason = bench.manager.get_status(session_id)["reason"]
        assert reason == "TypeError: its ready returns NoneType: write `async def ready`"


async def test_a_trigger_that_swallows_its_cancellation_is_given_up_and_its_later_events_do_not_count(
    open_bench: OpenBench,
    stubborn: Callable[..., dict[str, Any]],
    make_bundle: Callable[..., PreparedBundle],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(watch_module, "ENDING", 0.01)
    monkeypatch.setattr(watch_module, "CLEANUP", 0.01)
    fed = {"name": "fed", "triggers": [{"module": "trigger-fed"}]}
    async with open_bench() as bench:
        old = await bench.start(**stubborn("swallows"))
        await bench.manager.reconcile(
            make_bundle("family", background_sessions=[{"name": "queue", **stubborn("")}, fed])
        )
        assert bench.statuses() == {"queue": "running", "fed": "running"}
        [told] = [each for each in caplog.messages if "goes on although it was cancelled, and is given up" in each]
        assert told.startswith("trigger family/queue/trigger-stubborn#1 goes on")
        assert f"watch ({__file__}:" in told
        assert old not in bench.manager.get_status()
        [left] = given_up
        Stubborn.release.set()
        await asyncio.wait({left})
        with pytest.raises(TriggerError, match="its watch was cancelled and is given up"):
            await Stubborn.made[0].context.save_state({"n": 1})
        Stubborn.made[0].context.report("nobody asks any more")
        assert bench.statuses() == {"queue": "running", "fed": "running"}
        assert (await bench.deliveries(), given_up) == ([], set())


async def test_a_trigger_that_swallows_every_cancellation_holds_up_no_end(
    open_bench: OpenBench,
    stubborn: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_module, "ENDING", 0.01)
    monkeypatch.setattr(watch_module, "CLEANUP", 0.01)
    async with open_bench() as bench:
        await bench.start(**stubborn("swallows"))
        bench.manager.interrupt()
        await bench.manager.stop_all(grace=0.0)
        assert bench.statuses() == {"queue": "stopped"}
        [left] = given_up
        Stubborn.release.set()
        await asyncio.wait({left})


async def test_a_stopped_trigger_whose_stand_by_swallows_its_cancellation_is_given_up(
    open_bench: OpenBench, stubborn: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "ENDING", 0.01)
    monkeypatch.setattr(watch_module, "CLEANUP", 0.01)
    stands_by = asyncio.Event()

    async def stand_by(_: Stubborn) -> None:
        stands_by.set()
        while not Stubborn.release.is_set():
            with suppress(asyncio.CancelledError):
                await Stubborn.release.wait()

    monkeypatch.setattr(Stubborn, "stand_by", stand_by, raising=False)
    async with open_bench() as bench:
        await bench.start(**stubborn(""))
        await bench.manager.change("queue", "stopped")
        await stands_by.wait()
        await bench.manager.change("queue", "running")
        assert bench.statuses() == {"queue": "running"}
        [left] = given_up
        Stubborn.release.set()
        await asyncio.wait({left})


async def test_a_trigger_that_yields_what_is_no_event_is_told_so(
    open_bench: OpenBench, stubborn: Callable[..., dict[str, Any]]
) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(**stubborn("wrong"), max_restarts=0)
        await bench.until("trigger_failed", count=1, step=1)
        row = bench.manager.get_status(session_id)
        assert row["reason"].startswith(f"trigger-stubborn: it yields dict, not TriggerEvent ({__file__}:")


WATCHES: dict[str, tuple[str, str]] = {
    "a KeyError": ("async def watch(self):\n    {}['items']\n    yield", "KeyError: 'items' ({file}:3)"),
    "an error in a library": (
        "async def watch(self):\n    import json\n    yield json.loads('[1')",
        "JSONDecodeError: Expecting ',' delimiter: line 1 column 3 (char 2) ({file}:4)",
    ),
    "a list as data": (
        "async def watch(self):\n    yield TriggerEvent(TriggerType.CUSTOM, 'x', data=[1])",
        "trigger-odd: it yields a TriggerEvent whose data is list, not Mapping ({file}:3)",
    ),
    "a text as time": (
        "async def watch(self):\n    yield TriggerEvent(TriggerType.CUSTOM, 'x', timestamp='2020-01-01')",
        "trigger-odd: it yields a TriggerEvent whose timestamp is str, not datetime ({file}:3)",
    ),
    "a text as type": (
        "async def watch(self):\n    yield TriggerEvent('custom', 'x')",
        "trigger-odd: it yields a TriggerEvent whose type is str, not TriggerType ({file}:3)",
    ),
    "no source": (
        "async def watch(self):\n    yield TriggerEvent(TriggerType.CUSTOM, None)",
        "trigger-odd: it yields a TriggerEvent whose source is NoneType, not str ({file}:3)",
    ),
    "a number as cause": (
        "async def watch(self):\n    yield TriggerEvent(TriggerType.CUSTOM, 'x', cause=7)",
        "trigger-odd: it yields a TriggerEvent whose cause is int, not str ({file}:3)",
    ),
    "data that is not JSON": (
        "async def watch(self):\n    yield TriggerEvent(TriggerType.CUSTOM, 'x', data={'line': object()})",
        "TypeError: event.data.line: object is not JSON ({file}:3)",
    ),
    "a state that is not JSON": (
        "async def watch(self):\n    yield TriggerEvent(TriggerType.CUSTOM, 'x', state={1: {2}})",
        "TypeError: event.state.1: set is not JSON ({file}:3)",
    ),
    "data of a poll that is not JSON": (
        "name = 'trigger-odd'\nasync def poll(self):\n    yield self.event('k', {'line': object()})",
        "TypeError: event.data.line: object is not JSON ({file}:4)",
    ),
    "a coroutine": (
        "async def watch(self):\n    return None",
        "trigger-odd: its watch returns coroutine: write `async def watch` with a yield in it",
    ),
    "a plain generator": (
        "def watch(self):\n    yield None",
        "trigger-odd: its watch returns generator: write `async def watch` with a yield in it",
    ),
    "its own cancellation": (
        "async def watch(self):\n    import asyncio as a\n    a.current_task().cancel()\n    yield await a.sleep(9)",
        "trigger family/queue/trigger-odd#1 cancelled itself",
    ),
    "no watch": ("pass", "trigger-odd: this program cannot make it: TypeError: Odd has no watch"),
}


@pytest.mark.parametrize("mistake", WATCHES)
async def test_a_mistake_in_the_code_of_a_trigger_is_told_with_what_is_wrong_and_where(
    mistake: str, open_bench: OpenBench, plugins: Plugins, tmp_path: Path
) -> None:
    body, told = WATCHES[mistake]
    file = tmp_path / "odd.py"
    base = "PollingTrigger" if "poll(" in body else "Stubborn"
    file.write_text(f"class Odd({base}):\n{indent(body, '    ')}\n", encoding="utf-8")
    names: dict[str, Any] = {
        "__name__": "odd",
        "Stubborn": type("Plain", (), {"configure": Stubborn.configure, "stop": Stubborn.stop}),
        "PollingTrigger": PollingTrigger,
        "TriggerEvent": TriggerEvent,
        "TriggerType": TriggerType,
    }
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)

    class Offers:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-odd", names["Odd"])

    plugins.register(Offers(), "odd")
    async with open_bench() as bench:
        session_id = await bench.start(triggers=[{"module": "trigger-odd"}], max_restarts=0)
        await bench.until("trigger_failed", step=1)
        assert bench.manager.get_status(session_id)["reason"] == told.format(file=file)


async def test_a_trigger_may_yield_a_path_and_have_no_stop(
    open_bench: OpenBench, plugins: Plugins, tmp_path: Path
) -> None:
    class Small:
        def configure(self, config: object) -> None:
            """Take anything."""

        async def watch(self) -> AsyncIterator[TriggerEvent]:
            yield TriggerEvent(TriggerType.FILE_CHANGE, "small", file_path=tmp_path / "a.txt")  # type: ignore[arg-type]  # an author may
            await asyncio.Event().wait()

    class Offers:
        @hookimpl
        def amplifier_register_trigger(self, register: Any) -> None:
            register("trigger-small", Small)

    plugins.register(Offers(), "small")
    async with open_bench() as bench:
        await bench.start(triggers=[{"module": "trigger-small"}])
        await bench.until("completed")


# stores


class Faulty:
    """A store that cannot be used for some of what is asked of it, while it shall not be."""

    def __init__(self, store: DurableStore, *methods: str) -> None:
        self._store = store
        self.methods = methods
        self.failures = 0
        self.well = False

    def __getattr__(self, name: str) -> Any:
        if name in self.methods and not self.well:
            return self._fail
        return getattr(self._store, name)

    @property
    def rate(self) -> int:
        """How often it has failed since it was asked for last."""
        failures, self.failures = self.failures, 0
        return failures

    async def _fail(self, *arguments: Any, **given: Any) -> Any:
        self.failures += 1
        raise StoreUnavailable("/store", "the disk is full")


NEWS = [{"type": "session_event", "config": {"event_names": ["news"]}, "instruction_template": "news {n}"}]


async def _each_done_once(store: DurableStore, count: int) -> None:
    deliveries = list(reversed(await store.deliveries()))
    assert [(each.state, each.attempts, each.event.data["n"]) for each in deliveries] == [
        ("done", 1, n) for n in range(count)
    ]
    for each in deliveries:
        assert len(turn_starts(await store.read(each.session_id or ""))) == 1
    assert Counter(event.name for event in await events_of(store)) == {"news": count, "session:completed": count}


@pytest.mark.parametrize(
    "methods",
    [("enqueue",), ("claim",), ("create",), ("append",), ("commit",), ("commit", "nack"), ("get", "append", "nack")],
    ids=" and ".join,
)
async def test_while_the_store_cannot_be_written_nothing_is_lost_and_then_it_goes_on(
    methods: tuple[str, ...], open_bench: OpenBench, store: DurableStore
) -> None:
    faulty = Faulty(store, *methods)
    async with open_bench(faulty) as bench:
        session_id = await bench.start(triggers=NEWS, max_attempts=1, pool_size=2)
        for n in range(3):
            await bench.router.emit("news", {"n": n}, "somebody")
        await bench.until("store_failed", count=2, step=0.5)
        states = list(zip(bench.told("state", "status"), bench.told("state", "reason"), strict=True))
        assert ("degraded", str(StoreUnavailable("/store", "the disk is full"))) in states
        faulty.well = True
        await bench.until("completed", count=3, step=0.5)
        await bench.holds(lambda: bench.manager.get_status(session_id)["status"] == "running", step=0.5)
    assert faulty.failures >= 2
    await _each_done_once(store, 3)


async def test_a_trigger_is_armed_again_when_the_store_can_be_written(
    open_bench: OpenBench, store: DurableStore
) -> None:
    faulty = Faulty(store, "enqueue", "save_trigger_state")
    async with open_bench(faulty) as bench:
        await bench.start()
        await bench.until("armed")
        bench.trigger.feed(0)
        await bench.until("store_failed", count=3, step=0.5)
        assert bench.told("state", "status")[-1] == "degraded"
        assert bench.kinds().count("armed") == 1
        faulty.well = True
        await bench.until("armed", count=2, step=0.5)


async def test_a_trigger_that_goes_on_without_an_event_tells_of_the_store_at_once(
    open_bench: OpenBench, store: DurableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def watch(trigger: FedTrigger) -> AsyncIterator[TriggerEvent]:
        while (item := await trigger.queue.get()) is not None:
            with suppress(StoreUnavailable):
                yield cast("TriggerEvent", item)

    monkeypatch.setattr(FedTrigger, "watch", watch)
    faulty = Faulty(store, "enqueue", "save_trigger_state")
    async with open_bench(faulty) as bench:
        session_id = await bench.start()
        bench.trigger.feed(0)
        await bench.until("store_failed")
        assert bench.manager.get_status(session_id)["status"] == "degraded"
        faulty.well = True
        await bench.holds(lambda: bench.manager.get_status(session_id)["status"] == "running", step=0.5)
        bench.trigger.feed(1)
        await bench.until("completed", step=0.5)
        assert (bench.kinds().count("store_failed"), await bench.numbers()) == (1, [1])


async def test_what_cannot_be_stored_is_refused_to_whom_it_comes_from(
    open_bench: OpenBench, store: DurableStore
) -> None:
    faulty = Faulty(store, "enqueue", "emit")
    async with open_bench(faulty) as bench:
        await bench.start(triggers=[])
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await bench.manager.fire("queue")
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await bench.router.emit("news", {"n": 0}, "somebody")
        assert (await store.deliveries(), await events_of(store)) == ([], [])
        faulty.well = True
        assert await bench.manager.fire("queue")
        await bench.until("completed")


async def test_a_disk_that_is_full_is_waited_for(open_bench: OpenBench, store: Any) -> None:
    async def pages(most: int) -> int:
        [[count]] = await store._writer.run(lambda db: db.execute("PRAGMA page_count").fetchall())
        await store._writer.run(lambda db: db.execute(f"PRAGMA max_page_count = {most or count}").fetchall())
        return int(count)

    async with open_bench() as bench:
        await bench.start(instruction_template="x" * 20_000, max_attempts=1)
        await pages(0)
        bench.trigger.feed(1)
        await bench.until("accepted")
        await bench.until("store_failed")
        assert "the disk is full" in bench.told("store_failed", "error")[0]
        await pages(10_000)
        await bench.until("completed", step=0.5)
        assert [(each.state, each.attempts) for each in await bench.deliveries()] == [("done", 1)]


@pytest.mark.parametrize(
    ("events", "pauses"),
    [(1, (1, 2, 4, 8, 16, 32, 60, 60)), (50, (1, 2, 0, 8, 16, 32, 0, 60))],  # after three failures, another one at once
)
async def test_a_model_whose_answers_have_no_room_in_the_store_is_asked_ever_more_seldom(
    events: int, pauses: tuple[int, ...], open_bench: OpenBench, store: DurableStore, held: Held
) -> None:
    class Narrow(Faulty):
        async def append(self, session_id: str, messages: list[Any], *, at: int) -> Any:
            answers = any(each["role"] == "assistant" for each in messages)
            return await (self._fail() if answers and not self.well else store.append(session_id, messages, at=at))

    faulty = Narrow(store)  # claims and prompts, which are small, still have room
    async with open_bench(faulty, providers=held) as bench:
        await bench.start(max_attempts=1)
        for n in range(events):
            bench.trigger.feed(n)
        await bench.until("session")
        bench.held().go.set()
        began = bench.clock.monotonic()
        await bench.holds(lambda: len(bench.held().asked) == 9, step=1)
        assert bench.clock.monotonic() - began >= sum(pauses)
        faulty.well = True
        await bench.until("completed", count=events, step=1)
        assert {each.attempts for each in await bench.deliveries()} == {1}


async def test_what_has_failed_for_days_is_still_tried_again(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        assert 0.0 <= bench.manager._engine.backoff(100_000, base=0.5, cap=60.0) <= 60.0


async def test_after_answers_that_could_not_be_stored_one_worker_of_a_pool_tries_before_the_others(
    open_bench: OpenBench, store: DurableStore, held: Held
) -> None:
    faulty = Faulty(store, "commit")
    async with open_bench(faulty, providers=held) as bench:
        await bench.start(pool_size=4, max_attempts=1)
        for n in range(8):
            bench.trigger.feed(n)
        await bench.until("session")
        await bench.holds(lambda: len(bench.held().asked) == 4)
        bench.held().go.set()
        await bench.until("store_failed", count=4)
        bench.held().go.clear()
        await bench.clock.advance(9)  # 1, 2, 4 and 8 seconds after the failures
        await bench.until("store_failed", count=5)
        assert bench.kinds().count("started") == 5
        assert len(bench.held().asked) == 4  # the answer is there: it is not paid for again
        faulty.well = True
        bench.held().go.set()
        await bench.until("completed", count=8, step=1)
        assert bench.held().most == 4


async def test_a_store_that_cannot_be_used_is_asked_once_in_a_while(open_bench: OpenBench, store: DurableStore) -> None:
    faulty = Faulty(store, "commit", "nack")
    async with open_bench(faulty) as bench:
        await bench.start(pool_size=2)
        for n in range(4):
            bench.trigger.feed(n)
        await bench.until("store_failed", count=4, step=1)
        assert faulty.rate
        for _ in range(200):
            await asyncio.sleep(0)
        assert faulty.rate <= 2
        faulty.well = True
        await bench.until("completed", count=4, step=1)


async def test_a_failed_trigger_stays_failed_when_the_store_works_again(
    open_bench: OpenBench, store: DurableStore
) -> None:
    faulty = Faulty(store, "claim", "due_queues")
    faulty.well = True
    async with open_bench(faulty) as bench:
        session_id = await bench.start(max_restarts=0)
        bench.trigger.fail("gone")
        await bench.until("trigger_failed")
        faulty.well = False
        await bench.until("store_failed", step=1)
        faulty.well = True
        await bench.manager.fire("queue")
        await bench.until("completed", step=1)
        row = bench.manager.get_status(session_id)
        assert (row["status"], row["reason"]) == ("failed", raised_by_feed("gone"))


async def test_a_lease_that_cannot_be_renewed_once_ends_no_session(
    open_bench: OpenBench, held: Held, store: DurableStore
) -> None:
    faulty = Faulty(store, "renew")
    async with open_bench(faulty, providers=held) as bench:
        bench.manager._engine.lease = 60
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("session")
        await bench.holds(lambda: faulty.failures == 1, step=1)
        faulty.well = True
        await bench.clock.advance(20)
        bench.held().go.set()
        await bench.until("completed")
        assert [(each.state, each.epoch) for each in await bench.deliveries()] == [("done", 1)]


async def test_a_closed_store_stops_nothing_from_stopping(open_bench: OpenBench, store: DurableStore) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        await store.close()
        bench.manager.wake("queue")
        await bench.until("store_failed")
        status = bench.manager.get_status(session_id)
        assert (status["status"], "closed" in status["reason"]) == ("degraded", True)


# workers that were away


async def test_a_worker_that_wakes_after_its_lease_changes_nothing(
    open_bench: OpenBench, held: Held, store: DurableStore
) -> None:
    later = VirtualClock()
    await later.advance(3600)
    async with open_bench(providers=held) as stopped:
        stopped.manager._engine.lease = 60
        await stopped.start()
        stopped.trigger.feed(1)
        await stopped.until("session")
        await stopped.holds(lambda: stopped.held().together == 1)
        async with open_bench(clock=later) as other:
            await other.start()
            await other.until("completed")
        [done] = await store.deliveries()
        before = await store.get(done.session_id or ""), await events_of(store), await store.read(done.session_id or "")
        stopped.held().go.set()
        await stopped.holds(lambda: not stopped.manager.get_status("queue")["running"])
    assert (done.state, done.epoch) == ("done", 2)
    assert await store.deliveries() == [done]
    assert (
        await store.get(done.session_id or ""),
        await events_of(store),
        await store.read(done.session_id or ""),
    ) == (before)
    assert "completed" not in stopped.kinds()


async def test_a_machine_that_slept_goes_on_with_what_it_was_at(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        bench.manager._engine.lease = 60
        session_id = await bench.start(pool_size=2)
        bench.trigger.feed(1)
        await bench.until("session")
        await bench.holds(lambda: bench.held().together == 1)
        bench.clock._elapsed += 3600
        bench.manager.wake("queue")
        await bench.until("session", count=2)
        await bench.holds(lambda: bench.held().together == 1)
        bench.held().go.set()
        await bench.until("completed")
        assert bench.manager.get_status(session_id)["status"] == "running"
        [done] = await bench.deliveries()
        assert (done.state, done.epoch) == ("done", 2)
        assert bench.kinds().count("completed") == 1
