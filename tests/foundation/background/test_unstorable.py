"""An answer that no store can hold is a failed attempt, and no interruption."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

OpenBench = Callable[..., Any]

ENDLESS = """
from amplifier_core import ChatResponse, ProviderInfo, ToolCall, ToolCallBlock

class Endless:
    name = "endless"
    def get_info(self): return ProviderInfo(id="endless", display_name="Endless")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return list(response.tool_calls or ())
    async def complete(self, request, **kwargs):
        call = ToolCall(id="c", name="glob", arguments={"pattern": float("inf")})
        block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
        return ChatResponse(content=[block], tool_calls=[call])

async def mount(coordinator, config):
    await coordinator.mount("providers", Endless())
"""


async def test_an_answer_that_cannot_be_stored_is_tried_again_later_and_given_up_with_its_cause(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    providers = [{"module": "provider-endless", "source": "./endless.py"}]
    async with open_bench(providers=providers) as bench:
        await bench.start(max_attempts=2)
        bench.trigger.feed(1)
        await bench.until("retried")
        [(delay,)] = zip(bench.told("retried", "delay"), strict=True)
        assert delay > 0
        await bench.until("dead", step=1.0)
        (dead,) = await bench.deliveries()
        assert dead.attempts == 2
        assert dead.reason.endswith("input.pattern: inf is not JSON")
        assert (await bench.store.get(dead.session_id)).status == "failed"
