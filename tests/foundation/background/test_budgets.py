"""Budgets of background sessions: a daily one holds events until midnight, another one makes dead letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.testing import VirtualClock
from amplifier_foundation.background.budgets import BUDGET
from amplifier_foundation.operations.acting import Actor
from amplifier_foundation.operations.deliveries import retry_deliveries

OpenBench = Callable[..., Any]
ANN = Actor("ann", "command line")
LATE = datetime(2026, 1, 1, 23, 55, tzinfo=UTC)
"""Five minutes before a midnight: a clock wakes all that sleeps at each second of the way."""

PRICED = """
from decimal import Decimal
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolCallBlock
from amplifier_core.message_models import Usage

class Priced:
    name = "priced"
    def __init__(self, config): self.config = config
    def get_info(self): return ProviderInfo(id="priced", display_name="Priced")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return list(response.tool_calls or ())
    async def complete(self, request, **kwargs):
        cost = Decimal(str(self.config["cost"])) if "cost" in self.config else None
        usage = Usage(input_tokens=60, output_tokens=40, total_tokens=100, cost_usd=cost)
        asked = sum(message.role == "tool" for message in request.messages)
        if asked < self.config.get("calls", 0):
            call = ToolCall(id=f"call_{asked}", name="glob", arguments={"pattern": "*.md"})
            block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
            return ChatResponse(content=[block], tool_calls=[call], usage=usage)
        return ChatResponse(content=[TextBlock(text="done")], usage=usage)

async def mount(coordinator, config):
    await coordinator.mount("providers", Priced(config))
"""


@pytest.fixture
def priced(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return the providers of a bundle whose model takes 100 tokens a request, for `cost` dollars."""
    (tmp_path / "priced.py").write_text(PRICED)
    return lambda **config: [{"module": "provider-priced", "source": "./priced.py", "config": config}]


async def test_a_daily_budget_that_is_spent_holds_events_until_midnight(open_bench: OpenBench, priced: Any) -> None:
    async with open_bench(clock=VirtualClock(LATE), providers=priced(cost=1)) as bench:
        session_id = await bench.start(budget={"usd": 2, "per": "day"}, max_attempts=1)
        for n in range(1, 5):
            bench.trigger.feed(n)
        await bench.until("postponed")
        row = bench.manager.get_status(session_id)
        assert (row["status"], row["next_try"]) == ("degraded", "2026-01-02T00:00:00+00:00")
        assert "cost $2 of $2 today, until 2026-01-02T00:00:00Z" in row["reason"]
        assert await bench.states() == ["done", "done", "pending", "pending"]
        assert [each.attempts for each in await bench.deliveries()][2:] == [0, 0]
        await bench.holds(lambda: not bench.manager.get_status(session_id)["running"])
        assert await bench.manager.is_idle()
        await bench.clock.advance(5 * 60 - 1)
        assert bench.kinds().count("completed") == 2
        await bench.clock.advance(1)
        await bench.until("completed", count=4)
        assert bench.statuses() == {"queue": "running"}


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_a_spent_budget_has_put_back_is_handled_before_what_came_later(
    open_bench: OpenBench, priced: Any, restarts: bool
) -> None:
    clock, budget = VirtualClock(LATE), {"tokens": 200, "per": "day"}
    async with open_bench(clock=clock, providers=priced()) as bench:
        await bench.start(budget=budget)
        for n in (1, 2, 3):
            bench.trigger.feed(n)
        await bench.until("postponed")
        bench.trigger.feed(4)
        await bench.until("accepted", count=4)
        if not restarts:
            await bench.clock.advance(5 * 60)
            await bench.until("completed", count=4)
            assert bench.handled() == [1, 2, 3, 4]
    if restarts:
        async with open_bench(clock=VirtualClock(LATE + timedelta(days=1)), providers=priced()) as bench:
            await bench.start(budget=budget)
            await bench.until("completed", count=2, step=1)
            assert bench.handled() == [3, 4]


def make_clock() -> VirtualClock:
    """Return a clock on which it is later than on that of the command line: what is due there is due here."""
    return VirtualClock((datetime.now(UTC) + timedelta(days=1)).replace(hour=12))


async def test_a_retry_tries_an_event_that_waits_for_a_budget_which_is_still_spent(
    open_bench: OpenBench, priced: Any
) -> None:
    async with open_bench(clock=make_clock(), providers=priced()) as bench:
        await bench.start(budget={"tokens": 100, "per": "day"}, max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("completed")
        for count in (1, 2):
            bench.trigger.feed(count + 1)
            await bench.until("accepted", count=count + 1)
            await bench.until("postponed")
        _, waiting, _ = await bench.deliveries()
        assert (await retry_deliveries(bench.store, ANN, [waiting])).conflicts == []
        bench.manager.wake("queue")
        await bench.until("postponed", count=2)
        await bench.holds(lambda: bench.statuses() == {"queue": "degraded"})
        assert bench.kinds().count("started") == 1
        assert await bench.states() == ["done", "pending", "pending"]
        assert (await bench.deliveries())[1].available_at == waiting.available_at


@pytest.mark.parametrize("retries", [False, True])
async def test_an_event_that_an_earlier_version_had_wait_for_a_budget_is_taken_up(
    open_bench: OpenBench, priced: Any, retries: bool
) -> None:
    fields: dict[str, Any] = {"budget": {"tokens": 100, "per": "day"}}
    async with open_bench(clock=make_clock(), providers=priced()) as bench:
        await bench.start(**fields)
        bench.trigger.feed(1)
        await bench.until("completed")
        bench.trigger.feed(2)
        await bench.until("postponed")
    _, waiting = await bench.deliveries()
    place, how = (waiting.project, waiting.queue), {"owner": "o", "lease": 60.0, "session_id": "s"}
    claimed = await bench.store.claim(*place, **how, now=waiting.available_at)
    reason = str(waiting.reason).removeprefix("postponed: ")
    await bench.store.nack(claimed, reason=reason, available_at=waiting.available_at, counted=False)
    _, waiting = await bench.deliveries()
    if retries:
        assert [each.delivery_id for each in (await retry_deliveries(bench.store, ANN, [waiting])).due] == [
            waiting.delivery_id
        ]
    else:
        async with open_bench(clock=VirtualClock(bench.clock.now()), providers=priced()) as bench:
            await bench.start(**fields)
            await bench.clock.advance(5)
            await bench.until("postponed")
            await bench.holds(lambda: not any(row["running"] for row in bench.manager.get_status().values()))
            assert await bench.manager.is_idle()


async def test_a_restart_does_not_reset_a_daily_budget(open_bench: OpenBench, priced: Any) -> None:
    fields = {"budget": {"tokens": 100, "per": "day"}, "max_attempts": 1}
    async with open_bench(providers=priced()) as bench:
        await bench.start(**fields)
        bench.trigger.feed(1)
        await bench.until("completed")
    async with open_bench(providers=priced()) as bench:
        await bench.start(**fields)
        bench.trigger.feed(2)
        await bench.until("postponed")
        assert "used 100 of 100 tokens today" in bench.told("postponed", "reason")[0]
        assert await bench.states() == ["done", "pending"]
    async with open_bench(clock=VirtualClock(bench.clock.now().replace(day=2)), providers=priced()) as bench:
        await bench.start(**fields)
        await bench.until("completed")
        assert await bench.states() == ["done", "done"]


async def test_a_budget_for_good_that_is_spent_makes_dead_letters_with_the_reason(
    open_bench: OpenBench, priced: Any
) -> None:
    async with open_bench(providers=priced(cost=0.5)) as bench:
        await bench.start(budget={"usd": 0.5})
        bench.trigger.feed(1)
        await bench.until("completed")
        bench.trigger.feed(2)
        await bench.until("dead")
        (_, dead) = await bench.deliveries()
        assert (dead.state, dead.attempts) == ("dead", 1)
        assert "the sessions of its background session cost $0.5 of $0.5" in dead.reason
        assert "background_sessions: [{budget: {…}}]" in dead.reason
        assert bench.statuses() == {"queue": "running"}


async def test_a_session_that_spends_the_daily_budget_goes_on_where_it_was(open_bench: OpenBench, priced: Any) -> None:
    tools = [{"module": "tool-filesystem"}]
    async with open_bench(clock=VirtualClock(LATE), providers=priced(calls=3), tools=tools) as bench:
        await bench.start(budget={"tokens": 200, "per": "day"}, max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("postponed")
        (waiting,) = await bench.deliveries()
        assert (waiting.state, waiting.attempts) == ("pending", 0)
        assert len(await bench.store.read(waiting.session_id)) == 5
        await bench.clock.advance(5 * 60)
        await bench.until("completed")
        record = await bench.store.get(waiting.session_id)
        assert {day: row["turns"] for day, row in record.metadata["ledger"].items()} == {
            "2026-01-01": 1,
            "2026-01-02": 0,
        }
        assert [len(await bench.store.read(waiting.session_id)), record.metadata["usage"]["requests"]] == [8, 4]


async def test_the_budget_of_the_bundle_counts_all_its_sessions(open_bench: OpenBench, priced: Any) -> None:
    async with open_bench(providers=priced(), budget={"tokens": 200, "per": "day"}) as bench:
        await bench.start()
        first = bench.trigger
        await bench.start(name="other")
        first.feed(1)
        bench.trigger.feed(2)
        await bench.until("completed", count=2)
        first.feed(3)
        await bench.until("postponed")
        assert "the sessions of its bundle used 200 of 200 tokens" in bench.told("postponed", "reason")[0]
        assert bench.statuses()["queue"] == "degraded"


async def test_a_daily_budget_of_one_session_holds_its_event_alone(open_bench: OpenBench, priced: Any) -> None:
    tools = [{"module": "tool-filesystem"}]
    spawn = {"budget": {"tokens": 100, "per": "day"}}
    async with open_bench(providers=priced(calls=1), tools=tools, spawn=spawn) as bench:
        await bench.start(max_attempts=1)
        bench.trigger.feed(1)
        bench.trigger.feed(2)
        await bench.until("postponed", count=2)
        assert (bench.statuses(), await bench.states()) == ({"queue": "running"}, ["pending", "pending"])
        assert BUDGET not in bench.manager._sessions.popitem()[1].problems


async def test_a_restart_goes_on_waiting_for_a_spent_budget_and_shows_it(open_bench: OpenBench, priced: Any) -> None:
    for fed in (2, 0):  # the second one only restarts
        async with open_bench(providers=priced()) as bench:
            session_id = await bench.start(budget={"turns": 1, "per": "day"})
            for n in range(fed):
                bench.trigger.feed(n)
            await bench.until("postponed")
            await bench.holds(lambda at=session_id: not bench.manager.get_status(at)["running"])
            assert await bench.manager.is_idle()
            assert bench.statuses() == {"queue": "degraded"}
            assert (await bench.deliveries())[1].reason.startswith("postponed: session 'queue")


@pytest.mark.parametrize("scope", ["background session", "tree"])
async def test_a_larger_budget_handles_what_waited_for_the_smaller_one(
    open_bench: OpenBench, priced: Any, scope: str
) -> None:
    async def run(tokens: int, kind: str) -> None:
        budget = {"tokens": tokens, "per": "day"}
        sections = {"spawn": {"budget": budget}} if scope == "tree" else {}
        tools = [{"module": "tool-filesystem"}]
        async with open_bench(providers=priced(calls=1), tools=tools, **sections) as bench:
            await bench.start(**({"budget": budget} if scope != "tree" else {}))
            if kind == "postponed":
                bench.trigger.feed(1)
            await bench.until(kind)
            assert [each.attempts for each in await bench.deliveries()] == [int(kind == "completed")]

    await run(100, "postponed")
    await run(1000, "completed")
