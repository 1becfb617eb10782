"""The list of tasks survives in the history of real sessions."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Run

BUNDLE = """---
bundle: {name: planner}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^plan (?P<task>.+)'}
          call: {tool: todo, input: {action: create, todos: [{content: "{task}", status: pending}]}}
        - when: {user: '^break'}
          call: {tool: todo, input: {action: update, todos: [{content: "", status: pending}]}}
        - when: {user: '^show'}
          call: {tool: todo, input: {action: list}}
        - when: {tool: todo}
          say: "{result}"
tools: [{module: tool-todo}]
---
"""


def test_a_resumed_session_and_a_fork_of_an_earlier_turn_go_on_with_their_lists(project: Path, amplifier: Run) -> None:
    (project / "bundle.md").write_text(BUNDLE)

    def say(*arguments: str) -> str:
        done = amplifier("run", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "created" in say("plan one")
    assert "created" in say("--resume", "last", "plan two")
    assert "'content' must be" in say("--resume", "last", "break it")
    assert '"two"' in say("--resume", "last", "show")
    assert '"one"' in say("--fork", "last@1", "show")
