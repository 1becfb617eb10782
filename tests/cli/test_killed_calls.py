"""Calls that changed the store just before their process was killed: when the turn goes on, nothing happens twice."""

from __future__ import annotations

import json
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
def test_an_event_emitted_before_a_kill_wakes_the_next_session_once(amplifier: Any, killed: Path, runner: str) -> None:
    first = {"name": "first", "triggers": [{"module": "trigger-manual"}], "instruction_template": "go"}
    follows = {"module": "trigger-session-event", "config": {"event_names": ["work:done"]}}
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
    assert [each["content"] for each in messages if each["role"] == "tool"] == ['{"emitted": "work:done"}']


def test_a_comment_made_before_a_kill_is_made_once(amplifier: Any, killed: Path) -> None:
    write_bundle(killed)
    assert amplifier("issue", "create", "a thing").returncode == 0
    assert amplifier("run", "say it").returncode == -9
    assert amplifier("run", "--resume", "last", "").returncode == 0
    shown = json.loads(amplifier("issue", "show", "1", "--json").stdout)["data"]
    assert [each["text"] for each in shown["said"]] == ["I see"]
