"""Calls that changed the store just before their process was killed: when the turn goes on, nothing happens twice."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

DEADLY = """
import os, signal
from pathlib import Path

async def mount(coordinator, config):
    def die(event, data):
        if data["tool_name"] in ("emit", "issue") and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    coordinator.hooks.register("tool:post", die)
"""
RULES = [
    {"when": {"user": "^go"}, "call": {"tool": "emit", "input": {"name": "work:done", "data": {"n": 1}}}},
    {"when": {"tool": "emit"}, "say": "told of {emitted}"},
    {"when": {"user": "^say"}, "call": {"tool": "issue", "input": {"operation": "comment", "id": 1, "text": "I see"}}},
    {"when": {"tool": "issue"}, "say": "said"},
]


@pytest.fixture
def killed(project: Path) -> Path:
    """A project whose first call of a tool kills its process, just behind its effect."""
    (project / "deadly.py").write_text(DEADLY)
    return project


def write_bundle(project: Path, **more: Any) -> None:
    plan = {
        "bundle": {"name": "talk"},
        "providers": [{"module": "provider-playbook", "config": {"rules": RULES, "otherwise": {"say": "heard"}}}],
        "tools": [{"module": "tool-emit"}, {"module": "tool-issue"}],
        "hooks": [{"module": "hooks-deadly", "source": "./deadly.py"}],
        **more,
    }
    (project / "bundle.md").write_text(f"---\n{json.dumps(plan)}\n---\n")


@pytest.mark.parametrize("runner", ["inprocess", "subprocess"])
@pytest.mark.parametrize(("prompt", "event"), [("go", "work:done"), ("say it", "issue:updated")])
def test_an_event_emitted_before_a_kill_wakes_the_next_session_once(
    amplifier: Any, killed: Path, runner: str, prompt: str, event: str
) -> None:
    assert amplifier("issue", "create", "a thing").returncode == 0
    first = {"name": "first", "triggers": [{"module": "trigger-manual"}], "instruction_template": prompt}
    follows = {"module": "trigger-session-event", "config": {"event_names": [event]}}
    chain = {"name": "chain", "triggers": [follows]}
    write_bundle(killed, background_sessions=[{**first, "runner": runner}, chain])
    assert amplifier("trigger", "fire", "first").returncode == 0
    assert amplifier("up", "--once").returncode == (-9 if runner == "inprocess" else 0)
    assert amplifier("up", "--once").returncode == 0
    events = [json.loads(line) for line in amplifier("logs", "--jsonl", "chain").stdout.splitlines()]
    assert [event["kind"] for event in events].count("accepted") == 1
    listed = json.loads(amplifier("session", "list", "--json").stdout)["data"]
    worked = next(each for each in listed if "first" in each["session_id"] and each["message_count"])
    messages = json.loads(amplifier("session", "show", worked["session_id"], "--json").stdout)["data"]["messages"]
    assert [each["content"] for each in messages if each["role"] == "tool"] == [json.dumps({"emitted": event})]


WINDOW = """
class Window:
    # Keeps the last turn, and counts its messages anew.
    def __init__(self): self.messages = []
    async def add_message(self, message):
        self.messages = [message] if message["role"] == "user" else [*self.messages, message]
    async def get_messages(self): return list(self.messages)
    async def get_messages_for_request(self, token_budget=None, provider=None): return list(self.messages)
    async def set_messages(self, messages):
        self.messages = []
        for each in messages:
            await self.add_message(each)
    async def clear(self): self.messages = []

async def mount(coordinator, config):
    await coordinator.mount("context", Window())
"""
COUNTING = """
from amplifier_core import ChatResponse, TextBlock, ToolCall
from amplifier_core.message_models import ToolCallBlock

class Counting:
    name = "counting"
    async def list_models(self): return []
    def parse_tool_calls(self, response): return response.tool_calls or []
    async def complete(self, request, **kwargs):
        if request.messages[-1].role == "tool":
            return ChatResponse(content=[TextBlock(text=request.messages[-1].content)])
        tool, text = request.messages[-1].content.split(" ", 1)
        given = {"name": text} if tool == "emit" else {"operation": "comment", "id": 1, "text": text}
        call = {"id": f"functions.{tool}:0", "name": tool}
        calls = [ToolCall(**call, arguments=given)]
        return ChatResponse(content=[ToolCallBlock(**call, input=given)], tool_calls=calls)

async def mount(coordinator, config):
    await coordinator.mount("providers", Counting(), name="counting")
"""


@pytest.mark.parametrize("context", ["window", "context-simple"])
def test_calls_of_later_turns_are_never_taken_for_earlier_ones(
    amplifier: Any, project: Path, home: Path, context: str
) -> None:
    (project / "window.py").write_text(WINDOW)
    (project / "counting.py").write_text(COUNTING)
    own = {"module": "context-window", "source": "./window.py"}
    provider = {"module": "provider-counting", "source": "./counting.py"}
    session = {"context": own if context == "window" else context}
    write_bundle(project, session=session, providers=[provider], hooks=[])
    assert amplifier("issue", "create", "a thing").returncode == 0
    assert amplifier("run", "emit work:done").returncode == 0
    for prompt in ("emit work:done", "issue Look again", "issue Look again"):
        assert amplifier("run", "--resume", "last", prompt).returncode == 0
    with closing(sqlite3.connect(home / "amplifier.db")) as db:
        events = [name for (name,) in db.execute("SELECT name FROM events")]
    assert (events.count("work:done"), events.count("issue:updated")) == (2, 2)
    shown = json.loads(amplifier("issue", "show", "1", "--json").stdout)["data"]
    assert [each["text"] for each in shown["said"]] == ["Look again"] * 2


def test_a_comment_made_before_a_kill_is_made_once(amplifier: Any, killed: Path) -> None:
    write_bundle(killed)
    assert amplifier("issue", "create", "a thing").returncode == 0
    assert amplifier("run", "say it").returncode == -9
    assert amplifier("run", "--resume", "last", "").returncode == 0
    shown = json.loads(amplifier("issue", "show", "1", "--json").stdout)["data"]
    assert [each["text"] for each in shown["said"]] == ["I see"]
    messages = json.loads(amplifier("session", "show", "last", "--json").stdout)["data"]["messages"]
    assert [each["content"] for each in messages if each["role"] == "tool"] == ['{"emitted": "issue:updated"}']
