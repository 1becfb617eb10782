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
    few = amplifier("cost", "--by", "session", "-n", "1")
    assert [line.split()[0] for line in few.stdout.splitlines()] == ["SESSION", ids[0], "TOTAL"]
    assert few.stdout.split()[-3:] == ["120", "≥", "$0.5000"], "the total is of all"
    assert few.stderr == "1 of 2 rows are shown, those with the highest cost. More: -n 10\n"
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


DEADLY = """
import os, signal
from pathlib import Path
from amplifier_core.models import ToolResult

class Deadly:
    name = "deadly"
    description = "Kills its process, once."
    input_schema = {"type": "object", "properties": {}}
    async def execute(self, given):
        if not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ToolResult(success=True, output="alive")

async def mount(coordinator, config):
    await coordinator.mount("tools", Deadly())
"""
CALLING = (
    PRICED.replace(
        'return ChatResponse(content=[TextBlock(text="done")], usage=usage)',
        """from amplifier_core.message_models import ToolCall, ToolCallBlock
        steps = sum(message.role == "assistant" for message in request.messages)
        if steps == 2: return ChatResponse(content=[TextBlock(text="done")], usage=usage)
        call = ToolCallBlock(id=f"c{steps}", name=("todo", "deadly")[steps], input={"action": "list"})
        return ChatResponse(content=[call], tool_calls=[ToolCall(id=call.id, name=call.name, arguments=call.input)],
                            usage=usage, finish_reason="tool_calls")""",
    )
    .replace("prompt = request.messages[-1].content", 'prompt = "large"')
    .replace("return []\n    async def complete", "return response.tool_calls or []\n    async def complete")
)


@pytest.fixture
def deadly(priced: Path) -> Path:
    """The project with a tool that kills the process in the second of three steps of the first turn."""
    (priced / "priced.py").write_text(CALLING)
    (priced / "deadly.py").write_text(DEADLY)
    tools = [{"module": "tool-todo"}, {"module": "tool-deadly", "source": "./deadly.py"}]
    plan = {
        "bundle": {"name": "talk"},
        "providers": [{"module": "provider-priced", "source": "./priced.py"}],
        "tools": tools,
    }
    (priced / "bundle.md").write_text(f"---\n{json.dumps(plan)}\n---\n")
    return priced


def test_a_killed_turn_is_counted_and_its_resumed_rest_too(amplifier: Any, deadly: Path) -> None:
    assert amplifier("run", "go").returncode == -9
    assert json.loads(amplifier("cost", "--json").stdout)["data"]["total"]["requests"] == 2
    assert "$0.5000" in amplifier("session", "tree").stdout
    assert amplifier("run", "--resume", "last").returncode == 0
    total = json.loads(amplifier("cost", "--json").stdout)["data"]["total"]
    assert (total["requests"], total["input_tokens"], total["cost_usd"]) == (3, 3000, "0.75")
    assert "$0.7500" in amplifier("session", "tree").stdout


@pytest.mark.parametrize("budget", [None, {"usd": 100}])
def test_a_killed_process_of_a_session_is_counted(amplifier: Any, deadly: Path, budget: Any) -> None:
    text = (deadly / "bundle.md").read_text()
    plan = json.loads(text.split("---\n")[1])
    waiting = {"name": "work", "runner": "subprocess", "triggers": [{"module": "trigger-manual"}]}
    plan |= {"background_sessions": [waiting], **({"budget": budget} if budget else {})}
    (deadly / "bundle.md").write_text(f"---\n{json.dumps(plan)}\n---\n")
    assert amplifier("trigger", "fire", "work").returncode == 0
    assert amplifier("up", "--once").returncode == 0
    total = json.loads(amplifier("cost", "--json").stdout)["data"]["total"]
    assert (total["requests"], total["cost_usd"]) == (3, "0.75")
    listed = json.loads(amplifier("session", "list", "--json").stdout)["data"]
    assert [each["usage"]["requests"] for each in listed if each["message_count"]] == [3]


SHORT = """
class Short:
    def __init__(self): self.messages = []
    async def add_message(self, message): self.messages.append(dict(message))
    async def get_messages(self): return list(self.messages)
    async def set_messages(self, messages): self.messages = list(messages)
    async def clear(self): self.messages = []
    async def get_messages_for_request(self, token_budget=None, provider=None):
        if len(self.messages) > 4: self.messages = self.messages[-2:]
        return list(self.messages)

async def mount(coordinator, config):
    await coordinator.mount("context", Short())
"""


def test_the_answers_that_a_context_forgets_count_once(amplifier: Any, priced: Path) -> None:
    (priced / "short.py").write_text(SHORT)
    plan = json.loads((priced / "bundle.md").read_text().split("---\n")[1])
    plan["session"] = {"context": {"module": "context-short", "source": "./short.py"}}
    (priced / "bundle.md").write_text(f"---\n{json.dumps(plan)}\n---\n")
    for number in range(1, 7):
        assert amplifier("run", *(["--resume", "last"] if number > 1 else []), "large").returncode == 0
        assert json.loads(amplifier("cost", "--json").stdout)["data"]["total"]["requests"] == number


def test_a_fork_of_a_killed_session_has_spent_what_that_has(amplifier: Any, deadly: Path) -> None:
    assert amplifier("run", "go").returncode == -9
    plan = json.loads((deadly / "bundle.md").read_text().split("---\n")[1])
    (deadly / "bundle.md").write_text(f"---\n{json.dumps(plan | {'session': {'budget': {'usd': 0.5}}})}\n---\n")
    forked = amplifier("run", "--fork", "last", "--accept", "go on")
    assert (forked.returncode, "$0.50 of $0.5" in forked.stderr) == (7, True), forked.stderr
