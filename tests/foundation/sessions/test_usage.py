"""What sessions and their children take is counted once each, and what cannot be is left out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator
from amplifier_core.message_models import ChatRequest, ChatResponse, TextBlock, ToolCall, ToolCallBlock
from amplifier_core.message_models import Usage as WireUsage
from amplifier_core.models import ToolResult
from amplifier_foundation.sessions.usage import (
    SESSION_COST,
    Usage,
    UsageMeter,
    bridge_child_cost,
    children_usage,
    sum_cost_usd,
    sum_usages,
)

CONFIG = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}}


def took(input_tokens: int, output_tokens: int, cost: str | None = None) -> WireUsage:
    total = input_tokens + output_tokens
    return WireUsage(input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=total, cost_usd=cost)


class Model:
    """A provider whose answers take what it is told; with `hooks` it tells that itself too (`llm:response`)."""

    name = "model"

    def __init__(self, hooks: Any = None, telling: bool = True) -> None:
        self.hooks = hooks
        self.telling = telling
        self.script: list[WireUsage | Exception | None] = []

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        usage = self.script.pop(0)
        if isinstance(usage, Exception):
            await self._tell(status="error", error={"type": "RuntimeError", "msg": str(usage)})
            raise usage
        await self._tell(status="ok", usage=None if usage is None else usage.model_dump(mode="json"))
        if self.script:  # there is more to come: ask for it by calling a tool
            call = ToolCall(id="1", name="look", arguments={})
            block = ToolCallBlock(id=call.id, name=call.name, input={})
            return ChatResponse(content=[block], tool_calls=[call], usage=usage if self.telling else None)
        return ChatResponse(content=[TextBlock(text="Done.")], usage=usage if self.telling else None)

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    async def _tell(self, **data: Any) -> None:
        if self.hooks is not None:
            await self.hooks.emit("llm:response", {"provider": self.name, "model": "m-1", **data})


class Look:
    name = "look"
    description = "Look."
    input_schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012 - a tool as its protocol asks

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(output="seen")


class Metered:
    """A session with a model of its own, and the meter that listens to it."""

    def __init__(self, session: AmplifierSession) -> None:
        self.session = session
        self.coordinator = session.coordinator
        self.meter = UsageMeter(session.coordinator)
        self.meter.attach()

    async def take(self, *script: Any, own_voice: bool = True, telling: bool = True) -> Usage:
        """Run a turn of so many requests, and return what the session took so far."""
        model = Model(self.coordinator.hooks if own_voice else None, telling)
        model.script = list(script)
        await self.coordinator.mount("providers", model)
        await self.session.execute("go")
        return self.meter.usage


@pytest.fixture
async def metered() -> AsyncIterator[Metered]:
    async with AmplifierSession(CONFIG) as session:
        await session.coordinator.mount("tools", Look())
        yield Metered(session)


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator(session_id="s")


@pytest.mark.parametrize(("own_voice", "telling"), [(True, True), (True, False), (False, True)])
async def test_every_request_counts_once_whoever_tells_it(metered: Metered, own_voice: bool, telling: bool) -> None:
    voices = {"own_voice": own_voice, "telling": telling}
    assert await metered.take(took(10, 2, "0.001"), took(20, 3, "0.002"), took(30, 4, "0.003"), **voices) == Usage(
        input_tokens=60, output_tokens=9, cost_usd=Decimal("0.006"), requests=3
    )
    assert await metered.take(took(1, 1, "0.1"), **voices) == Usage(61, 10, cost_usd=Decimal("0.106"), requests=4)


async def test_a_request_that_nobody_measures_is_a_request_of_unknown_cost(metered: Metered) -> None:
    assert await metered.take(None) == Usage(requests=1)
    with_a_cost = await metered.take(took(1, 1, "0.5"))
    assert with_a_cost == Usage(1, 1, cost_usd=Decimal("0.5"), requests=2, cost_is_partial=True)


async def test_a_failed_request_does_not_count(metered: Metered) -> None:
    await metered.take(took(10, 2, "0.001"))
    with pytest.raises(RuntimeError, match="away"):
        await metered.take(took(5, 1, "0.001"), RuntimeError("the model is away"))
    assert metered.meter.usage == Usage(15, 3, cost_usd=Decimal("0.002"), requests=2)


async def test_a_meter_attached_twice_hears_once(metered: Metered) -> None:
    metered.meter.attach()
    assert (await metered.take(took(10, 2, "0.001"))).requests == 1


async def test_what_one_side_leaves_out_the_other_tells(coordinator: ModuleCoordinator) -> None:
    meter = UsageMeter(coordinator)
    meter.attach()
    emit = coordinator.hooks.emit
    rich, poor = {"input_tokens": 3, "output_tokens": 1, "cost_usd": "0.01"}, {"input_tokens": 3, "output_tokens": 1}
    for told, retold in ((rich, poor), (poor, rich), (rich, None), ({}, rich)):
        await emit("llm:response", {"provider": "a", "status": "ok", "usage": told})
        await emit("provider:response", {"provider": "a", "usage": retold})
    assert meter.usage == Usage(12, 4, cost_usd=Decimal("0.04"), requests=4)


async def test_requests_that_only_providers_tell_count_each(coordinator: ModuleCoordinator) -> None:
    meter = UsageMeter(coordinator)
    meter.attach()
    for count in (1, 2):
        await coordinator.hooks.emit("llm:response", {"usage": {"input": 5, "cache_read": 4, "cache_write_tokens": 2}})
        assert meter.usage.requests == count
    assert meter.usage == Usage(input_tokens=10, cache_read_tokens=8, cache_write_tokens=4, requests=2)


async def test_a_hook_that_denies_keeps_nothing_from_the_meter(coordinator: ModuleCoordinator) -> None:
    async def deny(event: str, data: dict[str, Any]) -> dict[str, str]:
        return {"action": "deny"}

    coordinator.hooks.register("llm:response", deny, priority=-1000)
    meter = UsageMeter(coordinator)
    meter.attach()
    await coordinator.hooks.emit("llm:response", {"usage": {"input_tokens": 5}})
    assert meter.usage.input_tokens == 5


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"input_tokens": -1}, "input_tokens=-1"),
    ({"input_tokens": "7"}, "input_tokens='7'"),
    ({"output_tokens": True}, "output_tokens=True"),
    ({"output_tokens": float("nan")}, "output_tokens=nan"),
    ({"cache_read_tokens": float("inf")}, "cache_read_tokens=inf"),
    ({"cost_usd": "-0.01"}, "cost_usd='-0.01'"),
    ({"cost_usd": float("nan")}, "cost_usd=nan"),
    ({"cost_usd": "sNaN"}, "cost_usd='sNaN'"),
    ({"cost_usd": "Infinity"}, "cost_usd='Infinity'"),
    ({"cost_usd": "free"}, "cost_usd='free'"),
    ({"cost_usd": False}, "cost_usd=False"),
    ({"cost_usd": ["1"]}, "cost_usd=['1']"),
    ({"cost_usd": "1e999999"}, "cost_usd='1e999999'"),
    ({"cost_usd": "9" * 60}, f"cost_usd='{'9' * 38}…"),
]


@pytest.mark.parametrize(("usage", "said"), IMPOSSIBLE, ids=[said[:30] for _, said in IMPOSSIBLE])
async def test_what_a_provider_cannot_have_taken_is_left_out_and_told_once(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture, usage: dict[str, Any], said: str
) -> None:
    meter = UsageMeter(coordinator)
    meter.attach()
    sound = {"input_tokens": 2, "cost_usd": "0.5"}
    for _ in range(3):
        await coordinator.hooks.emit("llm:response", {"provider": "odd", "usage": usage})
    await coordinator.hooks.emit("llm:response", {"provider": "sound", "usage": sound})
    assert meter.usage == Usage(2, cost_usd=Decimal("0.5"), requests=4, cost_is_partial=True)
    assert caplog.messages == [f"provider 'odd' reports an impossible usage; left out: {said}"]


async def test_a_usage_that_is_none_at_all_is_left_out(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    meter = UsageMeter(coordinator)
    meter.attach()
    await coordinator.hooks.emit("llm:response", {"provider": "odd", "usage": "much"})
    assert meter.usage == Usage(requests=1)
    assert caplog.messages == ["provider 'odd' reports an impossible usage; left out: usage='much'"]


def test_usages_add_up_in_any_order() -> None:
    parts = [
        Usage(1, 2, 3, 4, Decimal("0.1"), 1),
        Usage(10, cost_usd=Decimal("0.2"), requests=1),
        Usage(100, requests=2),
        Usage(),
    ]
    sums = {sum(order, Usage()) for order in permutations(parts)}
    assert sums == {Usage(111, 2, 3, 4, Decimal("0.3"), 4, cost_is_partial=True)}
    assert parts[0] + Usage() == parts[0]
    assert (parts[2] + parts[2]).cost_is_partial is False


def test_a_usage_comes_back_from_json_as_it_was() -> None:
    for usage in (Usage(), Usage(1, 2, 3, 4, Decimal("0.10"), 5, cost_is_partial=True), Usage(7, requests=1)):
        assert Usage.from_dict(json.loads(json.dumps(usage.to_dict()))) == usage
    assert Usage.from_dict({"input_tokens": 3, "cost_usd": 0.1, "total_tokens": 3}) == Usage(
        3, cost_usd=Decimal("0.1"), requests=1
    )


async def test_a_child_counts_with_its_parent_also_when_it_is_gone(metered: Metered) -> None:
    await metered.take(took(10, 1, "0.1"))
    async with AmplifierSession(CONFIG, parent_id=metered.session.session_id) as child:
        inner = Metered(child)
        bridge_child_cost(child.coordinator, Usage(5, 5, cost_usd=Decimal("0.03"), requests=1), "grandchild")
        await inner.take(took(20, 2, "0.2"))
        bridge_child_cost(metered.coordinator, await inner.meter.total(), "child")
    bridge_child_cost(metered.coordinator, Decimal("0.4"), "other")
    contributed = await metered.coordinator.collect_contributions(SESSION_COST)
    assert contributed == [
        {
            "children": 2,
            "input_tokens": 25,
            "output_tokens": 7,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "cost_usd": "0.63",
            "requests": 2,
            "cost_is_partial": False,
        }
    ]
    assert sum_cost_usd(contributed) == Decimal("0.63")
    assert metered.meter.usage == Usage(10, 1, cost_usd=Decimal("0.1"), requests=1)
    assert await metered.meter.total() == Usage(35, 8, cost_usd=Decimal("0.73"), requests=3)


async def test_a_child_that_is_told_again_counts_once(coordinator: ModuleCoordinator) -> None:
    for cost in ("0.1", "0.2"):
        bridge_child_cost(coordinator, Decimal(cost), "child")
    assert children_usage(coordinator) == Usage(cost_usd=Decimal("0.2"))
    bridge_child_cost(coordinator, Usage(1, cost_usd=Decimal("0.3"), requests=1), "child", adds=True)
    assert children_usage(coordinator) == Usage(1, cost_usd=Decimal("0.5"), requests=1)
    assert len(await coordinator.collect_contributions(SESSION_COST)) == 1


async def test_what_thousands_of_children_took_is_summed_and_not_remembered_one_by_one(
    coordinator: ModuleCoordinator,
) -> None:
    for number in range(2000):
        bridge_child_cost(coordinator, Usage(1, cost_usd=Decimal("0.01"), requests=1), f"child-{number}", adds=True)
    assert children_usage(coordinator) == Usage(2000, cost_usd=Decimal("20.00"), requests=2000)
    [told] = await coordinator.collect_contributions(SESSION_COST)
    assert (told["children"], told["cost_usd"]) == (2000, "20.00")
    assert len(coordinator.channels[SESSION_COST]) == 1


@pytest.mark.parametrize("costs", [(None, None), ("0.1", None), (None, "0.1", "0.02"), ("0.1", "0.2")], ids=repr)
def test_many_usages_sum_up_as_one_after_the_other(costs: tuple[str | None, ...]) -> None:
    usages = [
        Usage(number, 2 * number, 3, 4, None if cost is None else Decimal(cost), requests=1)
        for number, cost in enumerate(costs)
    ]
    assert sum_usages([Usage(), *usages]) == sum(usages, Usage())
    assert sum_usages([]) == Usage()


async def test_a_child_of_unknown_cost_makes_the_sum_a_part(coordinator: ModuleCoordinator) -> None:
    bridge_child_cost(coordinator, Usage(5, requests=1), "quiet")
    assert sum_cost_usd(await coordinator.collect_contributions(SESSION_COST)) is None
    bridge_child_cost(coordinator, Decimal("0.1"), "child")
    assert children_usage(coordinator) == Usage(5, cost_usd=Decimal("0.1"), requests=1, cost_is_partial=True)
    assert children_usage(ModuleCoordinator()) == Usage()


@pytest.mark.parametrize(
    ("told", "contributed", "total"),
    [
        (None, "0.5", Usage(3, requests=1, cost_usd=Decimal("0.5"))),
        ("0.2", "0.5", Usage(3, requests=1, cost_usd=Decimal("0.2"))),
        (None, None, Usage(3, requests=1)),
    ],
)
async def test_what_providers_contribute_stands_where_events_tell_no_cost(
    coordinator: ModuleCoordinator, told: str | None, contributed: str | None, total: Usage
) -> None:
    meter = UsageMeter(coordinator)
    meter.attach()
    coordinator.register_contributor(SESSION_COST, "provider", lambda: {"cost_usd": contributed})
    bridge_child_cost(coordinator, Usage(), "child")
    await coordinator.hooks.emit("llm:response", {"usage": {"input_tokens": 3, "cost_usd": told}})
    assert await meter.total() == total


def test_costs_are_summed_whatever_the_shape_they_come_in(caplog: pytest.LogCaptureFixture) -> None:
    class Account:
        cost_usd = 0.1

    assert sum_cost_usd([{"cost_usd": "0.10"}, Account(), Decimal("0.2"), 1, {"cost_usd": None}, {}]) == Decimal("1.40")
    assert sum_cost_usd([]) is None
    assert sum_cost_usd([{"cost_usd": None}]) is None
    assert caplog.messages == []
    assert sum_cost_usd([{"cost_usd": -1}, "much", Decimal("0.1"), object]) == Decimal("0.1")
    [message] = caplog.messages
    assert message.startswith(
        "impossible contributions to session.cost were left out: cost_usd=-1, cost_usd='much', cost_usd=<class"
    )


def test_the_usage_since_an_earlier_one_is_that_of_the_requests_between() -> None:
    earlier = Usage(input_tokens=1, output_tokens=2, cost_usd=Decimal("0.5"), requests=1)
    turn = Usage(input_tokens=10, cache_read_tokens=3, cost_usd=Decimal("0.25"), requests=2)
    assert (earlier + turn).since(earlier) == turn
    assert turn.since(Usage()) == turn
    unknown = Usage(input_tokens=10, requests=1)
    assert (unknown + unknown).since(unknown) == unknown
