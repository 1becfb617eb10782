"""A mount plan with a tool that does what the prompt says, in a session with a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.isolation.process_table import find_below, parents_of_all
from amplifier_foundation.isolation.runner import SubprocessRunner
from amplifier_foundation.isolation.zygotes import Zygotes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KILLS = int(os.environ.get("KILLS", "10"))
PROGRAM = """
import asyncio, json, sys
from amplifier_foundation import run_session_in_subprocess
from amplifier_foundation.isolation.runner import SubprocessRunner
from amplifier_foundation.isolation.zygotes import Zygotes

plan, folder, way = sys.argv[1:]
runner = SubprocessRunner(Zygotes(way=way))
asyncio.run(run_session_in_subprocess(json.loads(plan), "Go", "p", folder, runner=runner))
"""
"""Runs a session; its arguments are the plan, the folder, and how children start."""
ACTING = """
from amplifier_core import ToolResult


class Act:
    name = "act"
    description = "Runs Python."
    input_schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}

    def __init__(self, coordinator):
        self.coordinator = coordinator

    async def execute(self, arguments):
        scope = {"coordinator": self.coordinator}
        exec("async def act():\\n" + "\\n".join("    " + line for line in arguments["code"].splitlines()), scope)
        return ToolResult(success=True, output=str(await scope["act"]()))


async def mount(coordinator, config):
    await coordinator.mount("tools", Act(coordinator))
"""


EVERY_WAY = pytest.mark.parametrize("runner", ["fork", "fresh", "bare"], indirect=True)
"""Runs a test with forks, with fresh interpreters, and with those as on systems that have no `/proc`."""


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest) -> Iterator[SubprocessRunner]:
    """A runner with processes of its own; none of them is left at the end."""
    made = SubprocessRunner(Zygotes(way=getattr(request, "param", "fork")))
    yield made
    zygotes = made.pids()
    started = {*zygotes, *find_below(zygotes)}
    made.close()
    assert started & living() == set()


def living() -> set[int]:
    """Return the ids of all processes that have not ended."""
    return set(parents_of_all())


async def until_it_exists(path: Path) -> None:
    """Wait for a file that a session writes."""
    while not path.exists():
        await asyncio.sleep(0.01)


@pytest.fixture
def module_paths(tmp_path: Path) -> dict[str, Path]:
    """The file of the tool `act`."""
    path = tmp_path / "modules" / "act.py"
    path.parent.mkdir()
    path.write_text(ACTING)
    return {"tool-act": path}


@pytest.fixture
def plan(module_paths: dict[str, Path]) -> Callable[..., dict[str, Any]]:
    """Return a plan whose session runs `code` with its tool, then answers with what came of it."""

    def make(code: str = "return 'done'", **session: Any) -> dict[str, Any]:
        rules = [
            {"when": {"tool": "act", "output": "(?s)(?P<what>.*)"}, "say": "It says: {what}"},
            {
                "when": {"user": "."},
                "call": {"tool": "act", "input": {"code": code.replace("{", "{{").replace("}", "}}")}},
            },
        ]
        return {
            "session": {"orchestrator": "loop-basic", "context": "context-simple", **session},
            "providers": [{"module": "provider-playbook", "config": {"rules": rules}}],
            "tools": [{"module": "tool-act", "source": str(module_paths["tool-act"])}],
        }

    return make


def read(result: str) -> dict[str, Any]:
    """Return a result as published programs read it."""
    told: dict[str, Any] = json.loads(result)
    return told
