"""`amplifier run` with answers that their model did not finish."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke

PROVIDER = """
from amplifier_core.message_models import ChatResponse, TextBlock


class Short:
    name = "short"

    def get_info(self):
        return None

    async def complete(self, request, **kwargs):
        word = request.messages[-1].content
        text = "" if word == "refusal" else "Once upon"
        return ChatResponse(content=[TextBlock(text=text)] if text else [], finish_reason=word)

    def parse_tool_calls(self, response):
        return []


async def mount(coordinator, config):
    await coordinator.mount("providers", Short())
"""
CLOSED = """
from amplifier_core.models import HookResult


async def mount(coordinator, config):
    async def deny(event, data):
        return HookResult(action="deny", reason="closed")

    coordinator.hooks.register(config["event"], deny)
"""
BUNDLE = """---
bundle: {name: teller}
providers:
  - {module: provider-short, source: ./short.py}
---
Tell.
"""


@pytest.fixture(autouse=True)
def bundle(project: Path, home: Path) -> None:
    (project / "short.py").write_text(PROVIDER, encoding="utf-8")
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")


def test_an_answer_that_was_cut_is_shown_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "length"]) == exits.FAILED
    out, err = capsys.readouterr()
    assert out == "Once upon\n"
    assert "the answer is cut: it is as long as the model may answer (length)" in err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("model_context_window_exceeded", "the context of the model is full (context_length). Limit the history"),
        ("unload", "the service broke the answer off (broken_off). Try again"),
    ],
)
def test_an_answer_that_its_service_broke_off_is_told(capsys: pytest.CaptureFixture[str], word: str, told: str) -> None:
    assert invoke(["run", word]) == exits.FAILED
    out, err = capsys.readouterr()
    assert (out, told in err) == ("Once upon\n", True)


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--jsonl",)])
def test_a_refusal_is_never_an_empty_success(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert invoke(["run", *arguments, "refusal"]) == exits.FAILED
    out, err = capsys.readouterr()
    assert out
    assert "the model refused to answer (refusal)" in err


def test_it_is_stored_as_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    invoke(["run", "--json", "content_filter"])
    result = json.loads(capsys.readouterr().out)["data"]
    assert (result["status"], result["output"]) == ("incomplete", "Once upon")
    assert "(content_filter)" in result["error"]
    invoke(["session", "show", result["session_id"]])
    assert "the service held the answer back (content_filter)" in capsys.readouterr().out


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request"])
def test_what_a_hook_says_that_stops_a_turn_is_no_answer(
    project: Path, capsys: pytest.CaptureFixture[str], event: str
) -> None:
    (project / "closed.py").write_text(CLOSED, encoding="utf-8")
    hook = f"hooks: [{{module: hooks-closed, source: ./closed.py, config: {{event: '{event}'}}}}]\n---\nTell."
    (project / "bundle.md").write_text(BUNDLE.replace("---\nTell.", hook), encoding="utf-8")
    assert invoke(["run", "hello"]) == exits.FAILED
    out, err = capsys.readouterr()
    assert (out, "stopped before an answer: Denied by hook: closed" in err) == ("", True)
    assert invoke(["run", "--json", "hello"]) == exits.FAILED
    result = json.loads(capsys.readouterr().out)["data"]
    assert (result["status"], result["output"]) == ("incomplete", "")
    assert "Denied by hook: closed" in result["error"]
