"""What a background session did itself wakes nobody in a circle: it is refused, and the refusal says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.storage import DurableStore
from amplifier_core.testing import MemoryStore

pytestmark = pytest.mark.slow

OpenBench = Callable[..., Any]

OWN = "this background session caused it itself (self_trigger: true in the trigger's config accepts it)"
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


def woken_by(*names: str, **config: Any) -> list[dict[str, Any]]:
    return [{"type": "session_event", "config": {"event_names": list(names), **config}}]


async def test_a_session_does_not_wake_itself(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(triggers=woken_by("again"), on_complete_emit="again")
        await bench.manager.fire("queue")
        await bench.until("refused")
        assert await bench.states() == ["done", "refused"]
        assert bench.told("refused", "reason") == [OWN]


async def test_sessions_do_not_wake_each_other_in_a_circle(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(name="a", triggers=woken_by("b:done"), on_complete_emit="a:done")
        await bench.start(name="b", triggers=woken_by("a:done"), on_complete_emit="b:done")
        await bench.manager.fire("a")
        await bench.until("refused")
        first, second, refused = await bench.deliveries()
        assert [each.queue for each in (first, second, refused)] == ["family/a", "family/b", "family/a"]
        assert (refused.state, refused.reason) == ("refused", OWN)
        assert (first.event.depth, second.event.depth, refused.event.depth) == (0, 1, 2)
        assert second.event.source_session_id == first.session_id
        assert refused.event.source_session_id == second.session_id


async def test_a_circle_that_is_wanted_goes_on_to_max_depth(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(triggers=woken_by("again", self_trigger=True), on_complete_emit="again", max_depth=4)
        await bench.manager.fire("queue")
        await bench.until("refused")
        assert await bench.states() == ["done"] * 5 + ["refused"]
        assert bench.told("refused", "reason") == ["its chain of causes is longer than max_depth (4)"]


async def test_a_chain_of_causes_that_is_too_long_is_refused_and_recorded(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(max_depth=2)
        bench.trigger.feed(1, depth=3)
        await bench.until("refused")
        [delivery] = await bench.deliveries()
    assert (delivery.state, delivery.reason) == ("refused", "its chain of causes is longer than max_depth (2)")


async def test_what_a_session_emits_itself_continues_the_chain(open_bench: OpenBench, tmp_path: Path) -> None:
    (tmp_path / "emits.py").write_text(EMITS)
    async with open_bench(providers=[{"module": "provider-emits", "source": "./emits.py"}]) as bench:
        await bench.start(triggers=woken_by("again", self_trigger=True), max_depth=3)
        await bench.manager.fire("queue")
        await bench.until("refused")
        await bench.until("completed", count=4)
        assert await bench.states() == ["done"] * 4 + ["refused"]


async def test_events_of_sessions_above_a_rate_are_delayed_and_others_are_not(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(rate_limit={"limit": 2, "period": 60})
        for n in range(5):
            bench.trigger.feed(n, depth=1)
        bench.trigger.feed(5)
        await bench.until("accepted", count=6)
        await bench.until("completed", count=3)
        assert await bench.numbers() == [0, 1, 5]
        await bench.clock.advance(61)
        await bench.until("completed", count=5)
        await bench.clock.advance(61)
        await bench.until("completed", count=6)
        assert await bench.states() == ["done"] * 6


async def test_a_burst_of_events_of_sessions_is_refused_by_no_default(open_bench: OpenBench) -> None:
    async with open_bench(store=MemoryStore()) as bench:
        await bench.start(pool_size=8)
        for n in range(2_000):
            bench.trigger.feed(n, depth=1)
        await bench.until("accepted", count=2_000)
        assert {each.state for each in await bench.deliveries()} <= {"pending", "claimed", "done"}


async def test_a_file_that_a_session_wrote_is_no_news_and_one_that_a_person_wrote_is(
    open_bench: OpenBench, tmp_path: Path, store: DurableStore
) -> None:
    writes = {"call": {"tool": "write_file", "input": {"file_path": "own.txt", "content": "of the session"}}}
    rules = [{"when": {"user": "."}, **writes}]
    config = {"rules": rules, "otherwise": {"say": "written"}}
    watch = [{"type": "file_change", "config": {"patterns": ["*.txt"], "debounce_ms": 1}}]
    async with open_bench(
        providers=[{"module": "provider-playbook", "config": config}], tools=[{"module": "tool-filesystem"}]
    ) as bench:
        await bench.start(triggers=watch)
        (tmp_path / "first.txt").write_text("of a person")
        await bench.until("completed", step=0.05)
        assert (tmp_path / "own.txt").read_text() == "of the session"
        (tmp_path / "second.txt").write_text("of a person")
        await bench.until("completed", count=2, step=0.05)
        assert [each.event.file_path for each in await bench.deliveries()] == ["first.txt", "second.txt"]
