"""The tool `fork` at the command line: its README, and the forks in the tree of sessions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import amplifier_tool_fork
from amplifier_foundation.cli import invoke

README = (Path(amplifier_tool_fork.__file__).parents[1] / "README.md").read_text(encoding="utf-8")

ASKED = """---
bundle: {name: lead}
session: {orchestrator: loop-basic, context: context-simple}
permissions: {ask: [write_file]}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^try'}
          call: {tool: fork, input: {attempts: ["write one", "write two", "say three"]}}
        - when: {user: 'write (?P<what>\\w+)$'}
          call: {tool: write_file, input: {file_path: "{what}.txt", content: "{what}"}}
        - when: {user: 'say (?P<what>\\w+)$'}
          say: "said {what}"
        - when: {tool: write_file}
          say: "wrote {what}"
        - when: {tool: fork}
          say: "Tried."
tools:
  - module: tool-fork
  - module: tool-filesystem
background_sessions:
  - name: worker
    triggers:
      - module: trigger-manual
    instruction_template: "try it"
---
"""


def test_forks_that_wait_for_answers_go_on_where_they_were(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(*command: str) -> Any:
        capsys.readouterr()
        assert invoke([*command, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["data"]

    (project / "bundle.md").write_text(ASKED, encoding="utf-8")
    assert invoke(["trigger", "fire", "worker"]) == 0
    for waiting in (2, 1, 0):
        code = invoke(["up", "--once"])
        asked = read("approvals", "list")
        assert code == (1 if asked else 0)
        assert len(asked) == waiting
        assert len(list(project.glob("*.txt"))) == 2 - waiting
        if asked:
            assert invoke(["approvals", "approve", asked[0]["id"]]) == 0
    forks = {each["session_id"]: each for each in read("session", "list") if each["fork_of"]}
    assert {each["status"] for each in forks.values()} == {"completed"}
    assert sorted(each["message_count"] for each in forks.values()) == [3, 5, 5]


def test_a_session_keeps_the_best_of_its_forks_as_documented(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = re.search(r"^```yaml\n(.*?)^```", README, re.M | re.S)
    assert bundle is not None
    (project / "bundle.md").write_text(bundle[1], encoding="utf-8")
    assert invoke(["run", "name the robot"]) == 0
    assert capsys.readouterr().out == "It is Jo.\n"
    assert invoke(["session", "list", "--json"]) == 0
    sessions = json.loads(capsys.readouterr().out)["data"]
    [lead] = [each for each in sessions if each["parent_id"] is None]
    forks = [each for each in sessions if each["parent_id"] is not None]
    assert [(each["parent_id"], each["fork_of"]) for each in forks] == [(lead["session_id"], lead["session_id"])] * 2
    assert invoke(["session", "tree", lead["session_id"]]) == 0
    tree = capsys.readouterr().out
    assert all(each["session_id"] in tree for each in forks)
    assert "fork" in tree
