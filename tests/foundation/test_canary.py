"""Modules that leak the secret of the environment wherever they can: nothing stores or shows it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import canary
from tests.conftest import Run

MODULES = """
import base64, logging, os
from urllib.parse import quote
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCallBlock, ToolResult
from amplifier_core.llm_errors import AuthenticationError
from amplifier_core.streaming import STREAM_BLOCK_DELTA

KEY = os.environ["CANARY_API_KEY"]
FORMS = [KEY, quote(KEY, safe=""), KEY.encode().hex()]
FORMS += [base64.b64encode(("u:"[:n] + KEY + "..").encode()).decode() for n in range(3)]
LEAK = " | ".join(FORMS)


class Leaky:
    name = "leaky"
    def __init__(self, coordinator): self.coordinator = coordinator
    def get_info(self): return ProviderInfo(id="leaky", display_name="Leaky")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return response.tool_calls or []
    async def complete(self, request, **kwargs):
        logging.getLogger("leaky").warning("asked with %s", LEAK)
        said = str(request.messages[-1].content)
        if said == "fail":
            raise AuthenticationError(f"wrong {LEAK}", provider="leaky") from OSError(f"sent {LEAK}")
        if said.startswith("crash"):
            raise RuntimeError(f"crashed with {LEAK}")
        if said in ("ask", "break"):
            call = ToolCallBlock(id="1", name="leak", input={"how": said})
            return ChatResponse(content=[call], tool_calls=[{"id": "1", "name": "leak", "arguments": {"how": said}}])
        if said == "stream":
            text = f"It is {KEY}."
            for at in range(0, len(text), 5):
                await self.coordinator.hooks.emit(STREAM_BLOCK_DELTA, {"block_index": 0, "text": text[at : at + 5]})
        return ChatResponse(content=[TextBlock(text="done")], metadata={"sent": LEAK, "list": FORMS})


class Leak:
    name = "leak"
    description = "Leak."
    input_schema = {"type": "object", "properties": {"how": {"type": "string"}}}
    async def execute(self, input):
        if input["how"] == "break":
            raise ValueError(f"no access with {LEAK}")
        return ToolResult(output={"environment": LEAK, "list": FORMS})


async def mount(coordinator, config):
    if config.get("refuse"):
        raise ValueError(f"cannot use {LEAK}")
    await coordinator.mount("providers", Leaky(coordinator))
    await coordinator.mount("tools", Leak())
"""
BUNDLE = """---
bundle: {name: leaky}
session: {redact: {tool_results: true}}
providers: [{module: provider-leaky, source: ./leaky.py, config: CONFIG}]
hooks: [{module: hooks-logging, config: {path: ./events.jsonl, raw: true}}]
background_sessions:
  - {name: failing, triggers: [{module: trigger-manual}], instruction: crash, max_attempts: 1}
---
"""


@pytest.fixture
def folder(project: Path) -> Path:
    (project / "leaky.py").write_text(MODULES, encoding="utf-8")
    (project / "bundle.md").write_text(BUNDLE.replace("CONFIG", "{}"), encoding="utf-8")
    return project


def require_nothing(shown: str, folder: Path) -> None:
    key = os.environ[canary.NAME]
    assert not [form for form in canary.forms(key) if form.decode() in shown], shown
    assert list(canary.find(folder.parent, key)) == []


@pytest.mark.parametrize("prompt", ["hello", "fail", "crash", "ask", "break"])
def test_a_leaked_secret_is_neither_shown_nor_stored(prompt: str, folder: Path, amplifier: Run) -> None:
    done = [amplifier("run", prompt), amplifier("--debug", "run", "--jsonl", prompt)]
    done += [amplifier("session", "tree", "--format", "html")]
    require_nothing("".join(each.stdout + each.stderr for each in done), folder)
    assert "[REDACTED]" in done[0].stderr + done[0].stdout


def test_a_secret_that_is_streamed_in_pieces_is_not_shown(folder: Path, amplifier: Run) -> None:
    facts = [json.loads(line) for line in amplifier("run", "--jsonl", "stream").stdout.splitlines()]
    assert "".join(fact["text"] for fact in facts if fact.get("partial")) == "It is [REDACTED]."


def test_a_module_that_leaks_while_it_is_mounted_is_told_without_the_secret(folder: Path, amplifier: Run) -> None:
    (folder / "bundle.md").write_text(BUNDLE.replace("CONFIG", "{refuse: true}"), encoding="utf-8")
    done = amplifier("run", "hello")
    assert "cannot use [REDACTED]" in done.stderr
    require_nothing(done.stdout + done.stderr, folder)


def test_a_failed_background_session_keeps_no_secret(folder: Path, amplifier: Run) -> None:
    done = [amplifier("trigger", "fire", "failing"), amplifier("up", "--once", "--log", "up.log")]
    done += [amplifier(*command.split()) for command in ("trigger dead --json", "logs", "session tree")]
    shown = "".join(each.stdout + each.stderr for each in done)
    assert "crashed with [REDACTED]" in shown
    require_nothing(shown, folder)


def test_a_file_with_the_secret_is_found_in_each_form(tmp_path: Path) -> None:
    value = "canary/of+one-test-0123456789"
    for number, form in enumerate(canary.forms(value)):
        (tmp_path / f"{number}.txt").write_bytes(b"before " + form + b" after")
    (tmp_path / "other.json").write_text(json.dumps({"a": "canary"}))
    assert len(list(canary.find(tmp_path, value))) == 5
