"""A module that exits or raises CancelledError, or a hook that waits, ends neither the process nor its event."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import Plugins, hookimpl
from amplifier_core.cancellation import as_failure
from amplifier_core.errors import PluginError
from amplifier_foundation.background.approval_inbox import ApprovalInbox
from tests.odd_errors import PanicException, Unreadable

from .bench import FedTrigger
from .test_faults import Faulty

OpenBench = Callable[..., Any]

ENDING = """
import asyncio, sys

class PanicException(BaseException): pass

class Unreadable(Exception):
    def __str__(self): raise ValueError("no text")

class Ending:
    name = "ending"
    def __init__(self, how): self.how = how
    def get_info(self): return None
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        if self.how == "exit":
            sys.exit(3)
        if self.how == "interrupt":
            raise KeyboardInterrupt
        if self.how == "panic":
            raise PanicException("in Rust")
        if self.how == "unreadable":
            raise Unreadable
        waiting = asyncio.ensure_future(asyncio.Event().wait())
        waiting.cancel()
        await waiting

async def mount(coordinator, config):
    await coordinator.mount("providers", Ending(config["how"]))
"""
TOLD = {
    "exit": "called exit(3)",
    "cancel": "raised CancelledError",
    "interrupt": "raised KeyboardInterrupt",
    "panic": "raised PanicException: in Rust",
    "unreadable": "Unreadable: its text cannot be read",
}


RAISED = {
    "exit": SystemExit(3),
    "cancel": asyncio.CancelledError(),
    "interrupt": KeyboardInterrupt(),
    "panic": PanicException("in Rust"),
    "unreadable": Unreadable(),
}


@pytest.mark.parametrize("how", sorted(TOLD.keys() - {"unreadable"}))
async def test_a_provider_that_does_is_a_failed_attempt_with_its_place(
    open_bench: OpenBench, tmp_path: Path, how: str
) -> None:
    (tmp_path / "ending.py").write_text(ENDING)
    providers = [{"module": "provider-ending", "source": "./ending.py", "config": {"how": how}}]
    async with open_bench(providers=providers) as bench:
        await bench.start(max_attempts=2)
        bench.trigger.feed(1)
        await bench.until("retried")
        assert bench.told("retried", "delay")[0] > 0
        await bench.until("dead", step=1.0)
        (dead,) = await bench.deliveries()
        assert (dead.attempts, "ending.py, line " in dead.reason, TOLD[how] in dead.reason) == (2, True, True)


@pytest.mark.parametrize("how", TOLD)
async def test_a_tool_that_does_at_its_mount_is_missing_in_its_session(
    open_bench: OpenBench, flaky: Any, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    mounting = f"{ENDING}    await Ending(config['how']).complete(None)\n"
    (tmp_path / "ending.py").write_text(mounting)
    tools = [{"module": "tool-ending", "source": "./ending.py", "config": {"how": how}}]
    async with open_bench(providers=flaky("fine"), tools=tools) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed")
    [told] = [message for message in caplog.messages if "tool-ending" in message]
    assert told.startswith("tool 'tool-ending' was not mounted: ")
    assert TOLD[how] in told


@pytest.mark.parametrize("how", TOLD)
async def test_a_trigger_that_does_is_started_again(
    open_bench: OpenBench, flaky: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    watch, runs = FedTrigger.watch, list[str]()

    async def end_once(self: FedTrigger) -> AsyncIterator[Any]:
        runs.append(how)
        if len(runs) == 1:
            namespace: dict[str, Any] = {}
            exec(ENDING, namespace)
            await namespace["Ending"](how).complete(None)
        async for event in watch(self):
            yield event

    monkeypatch.setattr(FedTrigger, "watch", end_once)
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start()
        await bench.until("trigger_failed")
        assert TOLD[how] in bench.told("trigger_failed", "error")[0]
        await bench.holds(lambda: len(runs) == 2, step=1.0)
        bench.trigger.feed(1)
        await bench.until("completed")


@pytest.mark.parametrize("how", TOLD)
async def test_a_plugin_that_does_before_a_session_is_a_failed_attempt(
    open_bench: OpenBench, flaky: Any, plugins: Plugins, how: str
) -> None:
    class Ending:
        @hookimpl
        async def amplifier_before_spawn(self, request: Any) -> None:
            raise RAISED[how]

    plugins.register(Ending(), "ending")
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start(max_attempts=2)
        bench.trigger.feed(1)
        await bench.until("dead", step=1.0)
        (dead,) = await bench.deliveries()
        told = dead.reason.startswith("plugin 'ending' failed in amplifier_before_spawn: ")
        assert (dead.attempts, told, TOLD[how] in dead.reason) == (2, True, True)


@pytest.mark.parametrize("how", TOLD)
async def test_a_plugin_that_does_afterwards_is_named_and_the_other_events_are_handled(
    open_bench: OpenBench, flaky: Any, plugins: Plugins, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Ending:
        @hookimpl
        async def amplifier_after_spawn(self, result: Any) -> None:
            raise RAISED[how]

        @hookimpl
        async def amplifier_after_trigger(self, delivery: Any) -> None:
            raise RAISED[how]

    plugins.register(Ending(), "ending")
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start()
        for number in range(2):
            bench.trigger.feed(number)
        await bench.until("completed", count=2)
        await bench.holds(lambda: len(caplog.messages) == 4)
    hooks = ["amplifier_after_spawn", "amplifier_after_trigger"] * 2
    for told, hook in zip(caplog.messages, hooks, strict=True):
        assert told.startswith(f"plugin 'ending' failed in {hook}: ") and TOLD[how] in told


async def test_an_observer_that_cancels_itself_has_failed(open_bench: OpenBench, flaky: Any) -> None:
    def observe(activity: Any) -> None:
        raise asyncio.CancelledError

    async with open_bench(providers=flaky("fine")) as bench:
        bench.manager._engine.observers.insert(0, observe)
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed")


async def test_a_plugin_may_take_longer_over_a_handled_event_than_a_claim_lasts(
    open_bench: OpenBench, flaky: Any, plugins: Plugins
) -> None:
    go, told = asyncio.Event(), list[str]()

    class Slow:
        @hookimpl
        async def amplifier_after_trigger(self, delivery: Any) -> None:
            await go.wait()
            told.append(delivery.state)

    plugins.register(Slow(), "slow")
    async with open_bench(providers=flaky("fine")) as bench:
        bench.manager._engine.lease = 60.0
        await bench.start()
        for number in range(2):
            bench.trigger.feed(number)
            await bench.until("completed", count=number + 1)
            await bench.clock.advance(3 * bench.manager._engine.lease)
            assert len(told) == number
            go.set()
            await bench.holds(lambda number=number: len(told) == number + 1)
            go.clear()
    assert told == ["done", "done"]


async def test_a_trigger_is_not_caught_up_while_a_plugin_thinks_about_its_event(
    open_bench: OpenBench, flaky: Any, plugins: Plugins
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow:
        @hookimpl
        async def amplifier_before_trigger(self, event: Any) -> None:
            asked.set()
            await go.wait()

    plugins.register(Slow(), "slow")
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start()
        assert await bench.manager.is_idle(caught_up=True)
        bench.trigger.feed(1)
        await asked.wait()
        assert not await bench.manager.is_idle(caught_up=True)
        go.set()
        await bench.until("completed")
        await bench.holds(lambda: not bench.manager._sessions[next(iter(bench.manager._sessions))].running)
        assert await bench.manager.is_idle(caught_up=True)


class Raising(Faulty):
    """A store that raises `error` from the given methods."""

    error: BaseException

    async def _fail(self, *arguments: Any, **given: Any) -> Any:
        self.failures += 1
        raise self.error


@pytest.mark.parametrize("how", TOLD)
async def test_a_store_that_does_is_a_problem_until_it_is_well_again(
    open_bench: OpenBench, flaky: Any, store: Any, how: str
) -> None:
    broken = Raising(store, "claim")
    broken.error = RAISED[how]
    async with open_bench(broken, providers=flaky("fine")) as bench:
        await bench.start()
        await bench.until("failed", count=3, step=1.0)
        assert all(TOLD[how] in told for told in bench.told("failed", "reason"))
        broken.well, made = True, len(FedTrigger.made)
        await bench.holds(lambda: len(FedTrigger.made) > made, step=1.0)  # the old trigger is read no more
        bench.trigger.feed(1)
        await bench.until("completed", step=1.0)
        assert bench.statuses() == {"queue": "running"}


@pytest.mark.parametrize("how", TOLD)
async def test_a_store_that_does_at_the_end_of_an_attempt_has_failed_it(
    open_bench: OpenBench, flaky: Any, store: Any, how: str
) -> None:
    broken = Raising(store, "commit")
    broken.error = RAISED[how]
    async with open_bench(broken, providers=flaky("fine")) as bench:
        await bench.start(max_attempts=2)
        bench.trigger.feed(1)
        await bench.until("retried")
        assert bench.told("retried", "delay")[0] > 0
        await bench.until("dead", step=1.0)
        (dead,) = await bench.deliveries()
        assert (dead.state, dead.attempts, TOLD[how] in dead.reason) == ("dead", 2, True)


@pytest.mark.parametrize("how", TOLD)
async def test_an_event_that_such_a_store_cannot_take_back_is_given_back_when_it_can(
    open_bench: OpenBench, flaky: Any, store: Any, how: str
) -> None:
    broken = Raising(store, "commit", "nack")
    broken.error = RAISED[how]
    async with open_bench(broken, providers=flaky("fine")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("store_failed", count=2, step=1.0)
        assert all(TOLD[how] in told for told in bench.told("store_failed", "error"))
        broken.well = True
        await bench.until("completed", step=1.0)
        assert await bench.states() == ["done"]


@pytest.mark.parametrize("how", TOLD)
async def test_a_lookout_goes_on_after_a_store_that_does(
    open_bench: OpenBench, flaky: Any, store: Any, how: str
) -> None:
    broken = Raising(store, "due_queues")
    broken.error = RAISED[how]
    async with open_bench(broken, providers=flaky("fine")) as bench:
        await bench.start()
        await bench.holds(lambda: broken.failures > 1, step=1.0)


def test_a_cancellation_without_an_event_loop_is_the_modules_own() -> None:
    assert "raised CancelledError" in str(as_failure(asyncio.CancelledError()))


def replace(begin: Callable[[], object], error: BaseException) -> Callable[[], object]:
    """Return a call that raises an error in place of another one."""

    def fail() -> None:
        try:
            begin()
        except BaseException:
            raise error from None

    return fail


@pytest.mark.parametrize("between", [(), (RuntimeError,), (RuntimeError, ValueError)])
@pytest.mark.parametrize("is_pressed", [True, False])
def test_an_exit_in_place_of_a_signals_interrupt_is_the_programs(
    between: tuple[type[Exception], ...], is_pressed: bool
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    def begin() -> None:
        if is_pressed:
            signal.raise_signal(signal.SIGUSR1)
        raise SystemExit(2)

    before = signal.signal(signal.SIGUSR1, press)
    failing: Callable[[], object] = begin
    for kind in between:
        failing = replace(failing, kind())
    try:
        with pytest.raises(SystemExit) as caught:
            replace(failing, SystemExit(1))()
        assert (as_failure(caught.value) is caught.value) is is_pressed
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_exits_of_a_module_may_follow_each_other_in_any_number() -> None:
    exit = SystemExit(1)
    for _ in range(2 * sys.getrecursionlimit()):
        following = SystemExit(1)
        following.__context__, exit = exit, following
    assert isinstance(as_failure(exit), PluginError)


async def test_an_error_after_the_commit_is_told_and_ends_nothing_twice(
    open_bench: OpenBench, flaky: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(inbox: ApprovalInbox) -> None:
        raise RuntimeError("documents cannot be deleted")

    monkeypatch.setattr(ApprovalInbox, "forget", fail)
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start(max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("completed")
        [delivery] = await bench.deliveries()
        assert (delivery.state, bench.kinds()[-1]) == ("done", "completed")
    assert "has ended, and what comes after it failed: " in caplog.text
    assert "documents cannot be deleted" in caplog.text
    assert "taken over" not in caplog.text
