"""Slash commands of modules, in a conversation and in one turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke

BUNDLE = """---
bundle: {name: talk}
providers: [{module: provider-playbook, config: {otherwise: {say: "You said: {prompt}"}}}]
tools:
  - {module: first, source: ./modules/first.py}
  - {module: second, source: ./modules/second.py}
---
Answer.
"""
FIRST = """
import asyncio
from pathlib import Path


async def mount(coordinator, config):
    async def review(argument):
        if argument == "nothing":
            raise ValueError("there is nothing to review")
        if argument == "forever":
            print("waiting", flush=True)
            await asyncio.Event().wait()
        return f"Review {argument!r}."

    def offer():
        offered = [{"name": "review", "description": "Review\\x1b[2J files", "hint": "[FILE]", "expand": review}]
        if Path("late").exists():
            offered.append({"name": "git:late", "expand": review})
        return offered

    coordinator.register_contributor("prompt.commands", "tool-first", offer)
"""
SECOND = """
async def mount(coordinator, config):
    async def expand(argument):
        return "never"

    offered = [{"name": "review", "expand": expand}, {"name": "help", "expand": expand}]
    coordinator.register_contributor("prompt.commands", "tool-second", lambda: offered)
"""


@pytest.fixture(autouse=True)
def bundle(project: Path, home: Path) -> None:
    (project / "modules").mkdir()
    (project / "modules" / "first.py").write_text(FIRST, encoding="utf-8")
    (project / "modules" / "second.py").write_text(SECOND, encoding="utf-8")
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")


def test_a_person_types_a_command_of_a_module(terminals: Any, project: Path) -> None:
    person = terminals("run")
    begun = person.prompted()
    assert "/review of tool-second is left out: tool-first has a command of that name" in begun
    assert "/help of tool-second is left out: the name is that of a built-in command" in begun
    assert "You said: Review 'a b'.\n" in person.say("/review a b")
    helped = person.say("/help")
    assert "/review [FILE] Review [2J files (tool-first)\n" in helped
    assert "list these commands" in helped and "left out" not in helped
    assert "no command /reviw; did you mean /review?" in person.say("/reviw a.py")
    assert "amplifier: /review of tool-first failed: there is nothing to review\n" in person.say("/review nothing")
    assert "You said: /etc/passwd\n" in person.say("/etc/passwd")
    assert "no command /git:late" in person.say("/git:late x")
    (project / "late").touch()
    assert "the bundle has no agents" in person.say("/agents")
    person.type("/git:l\t x\n")
    assert "You said: Review 'x'.\n" in person.prompted()


def test_ctrl_c_ends_a_command_that_hangs(terminals: Any) -> None:
    person = terminals("run")
    person.prompted()
    person.type("/review forever\n")
    person.until("waiting\n")
    person.type("\x03")
    assert "amplifier: /review of tool-first failed: it was stopped\n" in person.prompted()
    assert "You said: Review 'x'.\n" in person.say("/review x")


def test_one_turn_takes_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "/review a.py"]) == exits.OK
    assert capsys.readouterr().out == "You said: Review 'a.py'.\n"
    assert invoke(["run", "/unknown a.py"]) == exits.OK
    assert capsys.readouterr().out == "You said: /unknown a.py\n"
    assert invoke(["run", "/review nothing"]) == exits.FAILED
    assert "amplifier: /review of tool-first failed: there is nothing to review" in capsys.readouterr().err


def test_a_command_that_nobody_knows_is_not_said_to_the_model_where_commands_are_missing(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    (project / "modules" / "second.py").write_text(SECOND.replace("lambda: offered", "lambda: 1 // 0"))
    assert invoke(["run", "/late a.py"]) == exits.NOT_FOUND
    out, err = capsys.readouterr()
    assert out == ""
    assert "no command /late is known, and the commands of tool-second are missing: ZeroDivisionError: " in err
    assert invoke(["run", "/review a.py"]) == exits.OK
