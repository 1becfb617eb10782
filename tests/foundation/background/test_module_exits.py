"""A module that exits, or raises CancelledError, ends neither the process nor the attempts at its event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from .bench import FedTrigger

OpenBench = Callable[..., Any]

ENDING = """
import asyncio, sys

class Ending:
    name = "ending"
    def __init__(self, how): self.how = how
    def get_info(self): return None
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        if self.how == "exit":
            sys.exit(3)
        waiting = asyncio.ensure_future(asyncio.Event().wait())
        waiting.cancel()
        await waiting

async def mount(coordinator, config):
    await coordinator.mount("providers", Ending(config["how"]))
"""
TOLD = {"exit": "called exit(3)", "cancel": "raised CancelledError"}


@pytest.mark.parametrize("how", TOLD)
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
