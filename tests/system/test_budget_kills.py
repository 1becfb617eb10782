"""A daily budget of a background session, over a `kill -9` and restarts of `amplifier up`."""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests import forks

PATIENCE = 60.0

PROVIDER = """
import os, signal
from pathlib import Path
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolCallBlock
from amplifier_core.message_models import Usage

class Dying:
    name = "dying"
    def get_info(self): return ProviderInfo(id="dying", display_name="Dying")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return list(response.tool_calls or ())
    async def complete(self, request, **kwargs):
        usage = Usage(input_tokens=60, output_tokens=40, total_tokens=100)
        if request.messages[-1].role == "tool":
            if not Path("killed").exists():
                Path("killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return ChatResponse(content=[TextBlock(text="done")], usage=usage)
        call = ToolCall(id="call_1", name="glob", arguments={"pattern": "*.md"})
        block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
        return ChatResponse(content=[block], tool_calls=[call], usage=usage)

async def mount(coordinator, config):
    await coordinator.mount("providers", Dying())
"""
BUNDLE = {
    "bundle": {"name": "spending"},
    "providers": [{"module": "provider-dying", "source": "./dying.py"}],
    "tools": [{"module": "tool-filesystem"}],
    "background_sessions": [
        {"name": "q", "triggers": [{"module": "trigger-manual"}], "budget": {"tokens": 150, "per": "day"}}
    ],
}


def test_a_killed_process_and_its_restarts_do_not_reset_a_daily_budget(amplifier: Any, project: Path) -> None:
    (project / "dying.py").write_text(PROVIDER)
    (project / "bundle.md").write_text(f"---\n{json.dumps(BUNDLE)}\n---\n")
    assert amplifier("trigger", "fire", "q").returncode == 0
    killed = amplifier("up", "--once")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    goes_on = amplifier("up", "--once")
    assert goes_on.returncode == 0, goes_on.stderr
    cost = json.loads(amplifier("cost", "--json").stdout)["data"]["total"]
    assert (cost["requests"], cost["input_tokens"] + cost["output_tokens"]) == (2, 200)
    before = datetime.now(UTC)
    assert amplifier("trigger", "fire", "q").returncode == 0
    row = _wait_until_held(amplifier, project)
    midnights = {
        f"{day:%Y-%m-%d}T00:00:00+00:00" for day in (before + timedelta(days=1), datetime.now(UTC) + timedelta(days=1))
    }
    assert row["next_try"] in midnights
    assert "used 200 of 150 tokens today" in row["reason"]
    assert (row["waiting"], row["done"], row["dead"]) == (1, 1, 0)


def _wait_until_held(amplifier: Any, project: Path) -> dict[str, Any]:
    """Return the row of `ps` while `up` runs and its budget is spent."""
    with forks.Popen(["-q", "up"], cwd=project) as up:
        try:
            ends = time.monotonic() + PATIENCE
            while time.monotonic() < ends:
                rows = json.loads(amplifier("ps", "--json").stdout)["data"]["background_sessions"]
                if rows and rows[0]["state"] == "degraded":
                    return dict(rows[0])
            raise AssertionError(f"the budget was not noticed: {rows}")
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(PATIENCE)
