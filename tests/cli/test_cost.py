"""`amplifier cost`: the stored usage by bundle, model, day and session, each request once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PRICED = """
from decimal import Decimal
from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.events import LLM_RESPONSE
from amplifier_core.message_models import Usage

class Priced:
    name = "priced"
    def __init__(self, coordinator): self.coordinator = coordinator
    def get_info(self): return ProviderInfo(id="priced", display_name="Priced")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        prompt = request.messages[-1].content
        cost = None if prompt == "unknown" else Decimal("0.25")
        usage = Usage(input_tokens=1000, output_tokens=40, total_tokens=1040, cost_usd=cost)
        data = {"provider": "priced", "model": prompt, "usage": usage.model_dump(mode="json", exclude_none=True)}
        await self.coordinator.hooks.emit(LLM_RESPONSE, {**data, "status": "ok"})
        return ChatResponse(content=[TextBlock(text="done")], usage=usage)

async def mount(coordinator, config):
    await coordinator.mount("providers", Priced(coordinator))
"""


@pytest.fixture
def priced(project: Path) -> Path:
    """A project whose model is called as the prompt says; the price of `unknown` is not known."""
    (project / "priced.py").write_text(PRICED)
    entry = {"module": "provider-priced", "source": "./priced.py"}
    (project / "bundle.md").write_text(f"---\n{json.dumps({'bundle': {'name': 'talk'}, 'providers': [entry]})}\n---\n")
    return project


def test_costs_are_summed_by_what_is_asked_for(amplifier: Any, priced: Path) -> None:
    empty = amplifier("cost")
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "No usage in this folder. All: --all\n")
    ids = [json.loads(amplifier("run", "--json", model).stdout)["data"]["session_id"] for model in ("large", "unknown")]
    amplifier("run", "--resume", ids[0], "large")
    shown = amplifier("cost", "--by", "bundle,model").stdout.splitlines()
    assert [" ".join(line.split()) for line in shown] == [
        "BUNDLE MODEL REQUESTS TOKENS IN TOKENS OUT COST",
        "talk priced/large 2 2,000 80 $0.5000",
        "talk priced/unknown 1 1,000 40 ?",
        "TOTAL 3 3,000 120 ≥ $0.5000",
    ]
    by_session = json.loads(amplifier("cost", "--by", "session,day", "--json").stdout)
    assert by_session["schema"] == "amplifier/cost/1"
    assert {row["session"]: row["requests"] for row in by_session["data"]["rows"]} == {ids[0]: 2, ids[1]: 1}
    assert by_session["data"]["total"]["cost_usd"] == "0.50"
    assert by_session["data"]["total"]["cost_is_partial"] is True
    fork = amplifier("run", "--fork", ids[0], "large")
    assert fork.returncode == 0, fork.stderr
    assert json.loads(amplifier("cost", "--json").stdout)["data"]["total"]["requests"] == 4


def test_a_wrong_key_is_named(amplifier: Any, project: Path) -> None:
    wrong = amplifier("cost", "--by", "model,week")
    assert wrong.returncode == 4
    assert "'week' is none of bundle, model, day, session" in wrong.stderr
