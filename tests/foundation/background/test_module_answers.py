"""A module that answers with something else, or fails after the work, costs its event an attempt, and is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import RunResult, hookimpl
from amplifier_core.documents import DocumentEdit
from amplifier_core.plugins import Plugins
from tests.odd_errors import PanicException

from ..conftest import playbook

OpenBench = Callable[..., Any]

LOOP = """
class Loop:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await context.add_message({"role": "user", "content": prompt})

async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Loop())
"""


class OddRunner:
    async def run(self, request: Any, build: Any) -> Any:
        async with build(request) as session:
            await session.execute(request.instruction)

    async def stop(self, session_id: str) -> bool:
        return False


class PanickingRunner(OddRunner):
    async def run(self, request: Any, build: Any) -> Any:
        return RunResult("", error=PanicException("inside"))


class OddTracker:
    """Fails, or answers with something else, in the verbs of its config."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config

    async def begin(self, documents: Any, delivery: Any) -> Any:
        return self._act("begin", None)

    async def finish(self, documents: Any, delivery: Any, outcome: Any) -> Any:
        return self._act("finish", DocumentEdit())

    async def give_up(self, documents: Any, delivery: Any, reason: str) -> Any:
        return self._act("give_up", DocumentEdit())

    async def recover(self, documents: Any, queue: str, live: Any) -> Any:
        return self._act("recover", [])

    def _act(self, verb: str, usual: Any) -> Any:
        how = self._config.get(verb)
        if how == "raise":
            raise RuntimeError("broken")
        if how == "cancel":
            raise asyncio.CancelledError
        return usual if how is None else how


@pytest.fixture(autouse=True)
def odd(plugins: Plugins) -> None:
    class Offers:
        @hookimpl
        def amplifier_register_runner(self, register: Any) -> None:
            register("runner-odd", OddRunner)
            register("runner-panicking", PanickingRunner)

        @hookimpl
        def amplifier_register_tracker(self, register: Any) -> None:
            register("tracker-odd", OddTracker)

    plugins.register(Offers(), "odd")


TRACKERS: dict[str, tuple[dict[str, Any], str]] = {
    "finish raises": ({"finish": "raise"}, "tracker 'tracker-odd', finish: RuntimeError: broken (__file__:"),
    "finish returns text": ({"finish": "x"}, "finish: TypeError: it must return a DocumentEdit, not str (__file__:"),
    "finish is cancelled": ({"finish": "cancel"}, "it raised CancelledError, and nobody has cancelled its work"),
    "begin returns a number": ({"begin": 5}, "begin: TypeError: it must return text or None, not int (__file__:"),
    "begin is cancelled": ({"begin": "cancel"}, "it raised CancelledError, and nobody has cancelled its work"),
    "give_up raises, too": ({"finish": "raise", "give_up": "raise"}, "finish: RuntimeError: broken"),
}


@pytest.mark.parametrize("fault", TRACKERS)
async def test_a_tracker_that_fails_costs_attempts_and_ends_no_background_session(
    open_bench: OpenBench, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    config, told = TRACKERS[fault]
    async with open_bench(providers=playbook()) as bench:
        await bench.start(tracker={"name": "tracker-odd", "config": config}, max_attempts=2)
        bench.trigger.feed(1)
        await bench.until("dead", step=1.0)
        [dead] = await bench.deliveries()
        assert (dead.state, dead.attempts) == ("dead", 2)
        assert told.replace("__file__", __file__) in dead.reason
        assert bench.statuses() == {"queue": "running"}
        ends = [each.data for each in await bench.store.events() if each.name == "session:error"]
    assert {each["error_type"] for each in ends} == ({"TrackerError"} if "finish" in config else set())
    is_told = any("is not given up: tracker 'tracker-odd', give_up: Runtime" in each for each in caplog.messages)
    assert is_told is ("give_up" in config)


async def test_a_runner_that_returns_a_panic_has_failed_its_attempts(open_bench: OpenBench) -> None:
    async with open_bench(providers=playbook()) as bench:
        await bench.start(runner="panicking", max_attempts=2)
        bench.trigger.feed(1)
        await bench.until("retried")
        assert bench.told("retried", "delay")[0] > 0
        await bench.until("dead", step=1.0)
        (dead,) = await bench.deliveries()
        name = f"runner {PanickingRunner.__module__}.PanickingRunner"
        assert (dead.attempts, dead.reason) == (2, f"{name} returned PanicException: inside")


async def test_a_runner_that_returns_nothing_is_named(open_bench: OpenBench) -> None:
    async with open_bench(providers=playbook()) as bench:
        await bench.start(runner="odd", max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("dead", step=1.0)
        [dead] = await bench.deliveries()
        name = f"runner {OddRunner.__module__}.OddRunner"
        assert f"TypeError: {name} must return RunResult with text, or text, not None ({__file__}:" in dead.reason


async def test_an_orchestrator_that_returns_nothing_has_not_done_its_event(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    (tmp_path / "loop.py").write_text(LOOP, encoding="utf-8")
    session = {"orchestrator": {"module": "loop-odd", "source": "./loop.py"}}
    async with open_bench(providers=playbook(), session=session) as bench:
        await bench.start(max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("dead", step=1.0)
        [dead] = await bench.deliveries()
        told = f"TypeError: orchestrator 'loop-odd' must answer with text, not with NoneType ({tmp_path}/loop.py:3)"
        assert told in dead.reason
