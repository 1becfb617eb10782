"""Providers that fail or end early: told at once; a service that is out, or a key, is waited for at no attempt."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.testing import VirtualClock
from amplifier_foundation.background.outages import Outage
from amplifier_foundation.settings.keys import keep_key

from ..conftest import playbook

pytestmark = pytest.mark.slow

OpenBench = Callable[..., Any]

OUT = {"kind": "ProviderUnavailableError", "status_code": 503}


@pytest.mark.parametrize(
    "kind",
    ["InvalidRequestError", "NotFoundError", "QuotaExceededError", "ContextLengthError", "ConfigurationError"],
)
async def test_what_another_attempt_cannot_mend_is_dead_at_once_with_its_reason(
    open_bench: OpenBench, flaky: Any, kind: str
) -> None:
    async with open_bench(providers=flaky({"kind": kind, "status_code": 400})) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("dead")
        (dead,) = await bench.deliveries()
        assert (dead.state, dead.attempts, bench.handled()) == ("dead", 1, [1])
        assert "it said no" in dead.reason
        assert bench.statuses() == {"queue": "running"}


@pytest.mark.parametrize(
    "failure", [OUT, {"kind": "AuthenticationError", "status_code": 401}, {"kind": "AccessDeniedError"}]
)
async def test_an_outage_or_a_refused_key_postpones_and_uses_up_no_attempt(
    open_bench: OpenBench, flaky: Any, failure: dict[str, Any]
) -> None:
    async with open_bench(providers=flaky(*[failure] * 12, "back")) as bench:
        session_id = await bench.start(max_attempts=2)
        bench.trigger.feed(1)
        await bench.until("postponed")
        row = bench.manager.get_status(session_id)
        assert (row["status"], row["next_try"] is not None) == ("degraded", True)
        assert "it said no" in row["reason"]
        assert [each.attempts for each in await bench.deliveries()] == [0]
        await bench.until("completed", step=1)
        row = bench.manager.get_status(session_id)
        assert (row["status"], row["reason"], row["next_try"]) == ("running", "", None)
        assert bench.kinds().count("postponed") == 12
        assert await bench.states() == ["done"]


HOUSE = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.llm_errors import AuthenticationError

class House:
    name = "house"
    def __init__(self, key): self.key = key
    def get_info(self): return ProviderInfo(id="house", display_name="House")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        if "new" not in str(self.key):
            raise AuthenticationError("the key is refused", provider="house", status_code=401)
        return ChatResponse(content=[TextBlock(text="open")])

async def mount(coordinator, config):
    if config.get("api_key") or not config.get("silent"):
        await coordinator.mount("providers", House(config.get("api_key")))
"""


@pytest.mark.parametrize("runner", [None, "subprocess"])
@pytest.mark.parametrize(
    ("config", "kept", "told"),
    [
        pytest.param({}, "", "the key is refused. .*, or run: amplifier auth login HOUSE_API_KEY", id="no key"),
        pytest.param({}, "old", "the key is refused. .*, or run: amplifier auth login HOUSE_API_KEY", id="an old key"),
        pytest.param({"silent": True}, "", "house: .* is its key missing?", id="mounted without one"),
        pytest.param(
            {"api_key": "secret://HOUSE_API_KEY"},
            "",
            "there is no key HOUSE_API_KEY: .* amplifier auth login HOUSE_API_KEY",
            id="a reference",
        ),
    ],
)
async def test_the_backlog_waits_for_a_key_and_goes_on_with_the_one_that_is_kept_meanwhile(
    open_bench: OpenBench, home: Path, tmp_path: Path, config: dict[str, Any], kept: str, told: str, runner: str | None
) -> None:
    (tmp_path / "house.py").write_text(HOUSE)
    if kept:
        keep_key("HOUSE_API_KEY", kept)
    providers = [{"module": "provider-house", "source": "./house.py", "config": config}]
    async with open_bench(providers=providers) as bench:
        session_id = await bench.start(max_attempts=1, runner=runner)
        for n in (1, 2, 3):
            bench.trigger.feed(n)
        await bench.until("postponed")
        row = bench.manager.get_status(session_id)
        assert row["status"] == "degraded"
        assert re.search(told, row["reason"]), row["reason"]
        await bench.holds(lambda: not bench.manager.get_status(session_id)["running"])
        assert (await bench.manager.is_idle(), bench.manager.has_trouble) == (True, True)  # so `up --once` ends with 1
        keep_key("HOUSE_API_KEY", "the-new-key")
        await bench.until("completed", count=3, step=1)
        assert await bench.states() == ["done"] * 3
        assert bench.manager.get_status(session_id)["status"] == "running"


async def test_a_clock_that_is_set_back_in_an_outage_prolongs_no_pause(open_bench: OpenBench, flaky: Any) -> None:
    busy = {"kind": "RateLimitError", "status_code": 429, "retry_after": 300}
    async with open_bench(providers=flaky(busy, "back")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("postponed")
        bench.clock.set_back(36_000)
        await bench.until("completed", step=1)
        assert bench.clock.monotonic() < 36_000


def test_a_machine_that_was_suspended_meanwhile_waits_no_longer() -> None:
    clock, outage = VirtualClock(), Outage()
    outage.add("delivery", clock, 18_000)
    clock.set_back(3_600)
    assert outage.seconds_left(clock) == 18_000
    clock.set_back(-3_600 - 28_800)  # the wall clock went on, the monotonic one stood still
    assert outage.seconds_left(clock) == 0


async def test_a_provider_that_says_when_is_asked_then_and_by_nobody_before(open_bench: OpenBench, flaky: Any) -> None:
    busy = {"kind": "RateLimitError", "status_code": 429, "retry_after": 300}
    async with open_bench(providers=flaky(busy, "back")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("postponed")
        (until,) = bench.told("postponed", "until")
        assert (until - bench.clock.now()).total_seconds() == 300
        bench.trigger.feed(2)  # it waits like the first
        await bench.until("accepted", count=2)
        await bench.clock.advance(299)
        assert bench.handled() == [1]
        await bench.until("completed", count=2, step=1)
        assert sorted(bench.handled()) == [1, 1, 2]


@pytest.mark.parametrize("failures", [1, 2, 4, 6, 10, 30])
async def test_what_an_outage_has_put_back_is_handled_before_what_came_later(
    open_bench: OpenBench, flaky: Any, failures: int
) -> None:
    async with open_bench(providers=flaky(*[OUT] * failures, "back")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("postponed")
        for n in (2, 3, 4, 5):
            bench.trigger.feed(n)
            await bench.until("accepted", count=n)
        await bench.until("completed", count=5, step=1)
        assert bench.handled()[failures:] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("stops", [False, True], ids=["an outage", "a stop"])
async def test_the_next_start_handles_an_event_before_what_came_later(
    open_bench: OpenBench, flaky: Any, held: Any, stops: bool
) -> None:
    async with open_bench(providers=held if stops else flaky(OUT)) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("started" if stops else "postponed")
        for n in (2, 3):
            bench.trigger.feed(n)
            await bench.until("accepted", count=n)
        await bench.clock.advance(1)
        later = bench.clock.now() + timedelta(seconds=120)
    async with open_bench(providers=flaky("back"), clock=VirtualClock(later)) as bench:
        await bench.start()
        await bench.until("completed", count=3, step=1)
        assert bench.handled() == [1, 2, 3]


BOTH = """
import asyncio
from amplifier_core import ProviderInfo, llm_errors

class Both:
    name = "both"
    waits = [300, 5]
    asked, together = 0, asyncio.Event()

    def get_info(self): return ProviderInfo(id="both", display_name="Both")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        Both.asked += 1
        if Both.asked == 2:
            Both.together.set()
        await Both.together.wait()
        raise llm_errors.RateLimitError("it said no", retry_after=Both.waits.pop(0))

async def mount(coordinator, config):
    await coordinator.mount("providers", Both())
"""


async def test_of_two_failures_the_longer_pause_is_the_next_try(open_bench: OpenBench, tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(BOTH)
    async with open_bench(providers=[{"module": "provider-both", "source": "./both.py"}]) as bench:
        session_id = await bench.start(pool_size=2)
        bench.trigger.feed(1)
        bench.trigger.feed(2)
        await bench.until("postponed", count=2)
        next_try = datetime.fromisoformat(bench.manager.get_status(session_id)["next_try"])
        assert round((next_try - bench.clock.now()).total_seconds()) == 300


async def test_the_pauses_of_an_outage_grow_to_the_longest_of_the_bundle(open_bench: OpenBench, flaky: Any) -> None:
    async with open_bench(providers=flaky(*[OUT] * 6, "back")) as bench:
        pauses: list[float] = []

        def longest(low: float, high: float) -> float:
            pauses.append(high)
            return high

        bench.manager._engine.random.uniform = longest
        await bench.start(retry={"delay": 2, "max_delay": 20})
        bench.trigger.feed(1)
        await bench.until("completed", step=1)
        assert pauses == [2, 4, 8, 16, 20, 20]


@pytest.mark.parametrize("what", ["poison", "forbidden poison"])
async def test_an_event_that_fails_alone_uses_up_its_attempts(open_bench: OpenBench, flaky: Any, what: str) -> None:
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start(max_attempts=2, instruction_template="{what} {n}")
        bench.trigger.feed(1, data={"what": what})
        for n in range(2, 60):
            bench.trigger.feed(n, data={"what": "good"})
            await bench.until("completed", count=n - 1, step=1)
            if "dead" in bench.kinds():
                break
        assert await bench.numbers("dead") == [1]
        assert (bench.kinds().count("retried"), bench.kinds().count("dead")) == (1, 1)
        assert bench.statuses() == {"queue": "running"}


@pytest.mark.parametrize(("poisons", "pool", "throttle"), [(2, 1, None), (3, 2, None), (1, 1, 60.0)])
async def test_more_events_that_fail_alone_than_there_are_workers_hold_no_other_up(
    open_bench: OpenBench, flaky: Any, poisons: int, pool: int, throttle: float | None
) -> None:
    async with open_bench(providers=flaky("fine")) as bench:
        rare = {"throttle": {"limit": 1, "period": throttle}} if throttle else {}
        await bench.start(max_attempts=1, pool_size=pool, instruction_template="{what} {n}", **rare)
        for n in range(1, poisons + 4):
            bench.trigger.feed(n, data={"what": "poison" if n <= poisons else "good"})
            await bench.until("accepted", count=n)
        await bench.until("completed", count=3, step=10)
        await bench.until("dead", count=poisons, step=10)
        assert sorted(await bench.numbers("dead")) == list(range(1, poisons + 1))
        assert await bench.manager.is_idle()
        assert bench.statuses() == {"queue": "running"}


async def test_a_wait_beyond_all_reason_is_a_day(open_bench: OpenBench, flaky: Any) -> None:
    busy = {"kind": "RateLimitError", "retry_after": 1e300}
    async with open_bench(providers=flaky(busy, "back")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("postponed")
        (until,) = bench.told("postponed", "until")
        assert (until - bench.clock.now()).total_seconds() == 86_400


async def test_a_provider_that_wants_no_pause_is_asked_after_growing_ones(open_bench: OpenBench, flaky: Any) -> None:
    busy = {"kind": "ProviderUnavailableError", "retry_after": 0.0}
    async with open_bench(providers=flaky(busy)) as bench:
        await bench.start(retry={"delay": 5, "max_delay": 600})
        bench.trigger.feed(1)
        await bench.until("postponed", count=12, step=1)
        assert bench.clock.monotonic() > 60


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "InvalidToolCallError", "retryable": True},
        {"kind": "StreamError", "has_answered": True},
    ],
)
async def test_answers_that_cannot_be_used_are_attempts_and_no_outage(
    open_bench: OpenBench, flaky: Any, answer: dict[str, Any]
) -> None:
    async with open_bench(providers=flaky(answer)) as bench:
        await bench.start(max_attempts=3)
        bench.trigger.feed(1)
        await bench.until("dead", step=1)
        (dead,) = await bench.deliveries()
        assert (dead.attempts, bench.kinds().count("postponed")) == (3, 0)


@pytest.mark.parametrize("reason", ["length", "refusal", "content_filter"])
async def test_an_unfinished_answer_is_dead_at_once_with_its_reason(
    open_bench: OpenBench, flaky: Any, reason: str
) -> None:
    async with open_bench(providers=flaky({"finish_reason": reason})) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("dead")
        (dead,) = await bench.deliveries()
        record = await bench.store.get(dead.session_id)
    assert (dead.state, dead.attempts) == ("dead", 1)
    assert f"({reason})" in dead.reason
    assert (record.status, record.error) == ("failed", dead.reason)


async def test_an_answer_that_its_service_broke_off_is_asked_for_again(open_bench: OpenBench, flaky: Any) -> None:
    async with open_bench(providers=flaky({"finish_reason": "unload"}, "whole")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed", step=1)
        assert await bench.states() == ["done"]


ASKING = [{"when": when, "call": {"tool": "glob"}} for when in ({"user": "."}, {"tool": "glob"})]
DENYING = """
from amplifier_core.models import HookResult

async def mount(coordinator, config):
    async def deny(event, data): return HookResult(action="deny", reason="the guard is broken")
    coordinator.hooks.register("prompt:submit", deny)
"""


@pytest.mark.parametrize(
    ("denies", "told"), [(False, "Stopped after 2 model calls"), (True, "Denied by hook: the guard is broken")]
)
@pytest.mark.parametrize("accepts", [False, True])
async def test_a_turn_that_stopped_before_an_answer_is_dead_with_its_reason(
    open_bench: OpenBench, tmp_path: Path, denies: bool, told: str, accepts: bool
) -> None:
    (tmp_path / "denying.py").write_text(DENYING)
    sections = {
        "providers": playbook(ASKING),
        "hooks": [{"module": "hooks-denying", "source": "./denying.py"}] if denies else [],
        "session": {"orchestrator": {"module": "loop-basic", "config": {"max_iterations": 2}}},
    }
    async with open_bench(**sections) as bench:
        await bench.start(accept_unfinished=accepts, on_complete_emit="queue:done")
        bench.trigger.feed(1)
        await bench.until("completed" if accepts else "dead")
        (delivery,) = await bench.deliveries()
        assert delivery.state == ("done" if accepts else "dead")
        assert accepts or f"stopped before an answer: {told}" in delivery.reason
        assert ("queue:done" in [event.name for event in await bench.store.events()]) == accepts


async def test_an_unfinished_answer_counts_where_the_bundle_accepts_it(open_bench: OpenBench, flaky: Any) -> None:
    async with open_bench(providers=flaky({"finish_reason": "length"})) as bench:
        await bench.start(accept_unfinished=True)
        bench.trigger.feed(1)
        await bench.until("completed")
        (outcome,) = bench.told("completed", "outcome")
    assert (outcome.status, outcome.output) == ("completed", "Once upon")
