"""A tool with `sandbox: true` in the real program: in a turn, an agent, a resumed session and a fork."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.programs import require

BUNDLE = """---
bundle: {name: worker}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^ask (?P<agent>\\S+)'}
          call: {tool: delegate, input: {agent: "{agent}", instruction: work}}
        - when: {user: work}
          call: {tool: work, input: {}}
        - when: {tool: work, output: '(?s)(?P<what>.*)'}
          say: "It says: {what}"
        - when: {tool: delegate}
          say: "{response}"
tools:
  - {module: tool-work, source: ./work.py, sandbox: true}
  - {module: tool-delegate}
agents:
  helper: {description: Helps., instruction: Help.}
  apart: {description: Works apart., instruction: Help., runner: subprocess}
  loose: {description: Has its own., instruction: Help., tools: [{module: tool-work, sandbox: false}]}
---
You work.
"""
WORK = """
import os
from amplifier_core import ToolResult

with open("imported", "w") as file:
    file.write(str(os.getpid()))


class Work:
    name = "work"
    description = "Looks around."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, arguments):
        return ToolResult(output={"outside": os.path.exists("../outside"), "here": os.path.exists("bundle.md")})


async def mount(coordinator, config):
    await coordinator.mount("tools", Work())
"""


@pytest.fixture(autouse=True)
def _worker(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("bwrap")
    monkeypatch.delenv("AMPLIFIER_TRUST", raising=False)
    (project / "bundle.md").write_text(BUNDLE)
    (project / "work.py").write_text(WORK)
    (project.parent / "outside").write_text("")


def amplifier(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forks.run(arguments)


def is_confined(done: subprocess.CompletedProcess[str], project: Path) -> bool:
    assert done.returncode == 0, done.stderr
    assert '"outside": false' in done.stdout and '"here": true' in done.stdout, done.stdout
    return int((project / "imported").read_text()) < 20  # an id of a small namespace of processes


@pytest.mark.parametrize("prompt", ["work", "ask helper", "ask apart", "ask loose", "ask self"])
def test_every_session_runs_it_in_its_sandbox(prompt: str, project: Path) -> None:
    assert is_confined(amplifier("run", "--trust", prompt), project)


@pytest.mark.parametrize("way", ["resume", "fork"])
def test_a_stored_session_goes_on_with_it(way: str, project: Path) -> None:
    assert is_confined(amplifier("run", "--trust", "work"), project)
    (project / "imported").unlink()
    listed = json.loads(amplifier("session", "list", "--json").stdout)["data"]
    session_id = listed[0]["session_id"]
    if way == "fork":
        session_id = json.loads(amplifier("session", "fork", session_id, "--json").stdout)["data"]["session_id"]
    assert is_confined(amplifier("run", "--trust", "--resume", session_id, "work"), project)


def test_a_changed_module_is_not_run_again_before_it_is_trusted(project: Path) -> None:
    assert is_confined(amplifier("run", "--trust", "work"), project)
    (project / "imported").unlink()
    (project / "work.py").write_text(WORK.replace("Looks around", "Looks elsewhere"))
    assert amplifier("run", "work").returncode == 3
    assert not (project / "imported").exists()


def test_show_and_trust_tell_of_it(project: Path) -> None:
    asked = amplifier("trust", ".")
    assert "tool-work (in a sandbox)" in asked.stdout + asked.stderr
    assert "sandbox" in amplifier("bundle", "show").stdout


def test_permissions_are_tested_without_its_code(project: Path) -> None:
    (project / "bundle.md").write_text(
        BUNDLE.replace("{module: tool-work, source: ./work.py,", "{module: tool-filesystem,")
    )
    code = """
import sys
from amplifier_foundation.cli import invoke
code = invoke(["permission", "test", "write_file(a)"])
print(code, "amplifier_tool_filesystem" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr
