"""A child has the guards of its parent and its own ones."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.spawning.inheritance import child_config
from tests import forks

if TYPE_CHECKING:
    from pathlib import Path

BUNDLE = """---
bundle: {name: shop}
session: {orchestrator: loop-basic, context: context-simple}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: 'ask (?P<path>\\S+)'}
          call: {tool: delegate, input: {agent: clerk, instruction: "order {path}"}}
        - when: {user: 'order (?P<path>\\S+)'}
          call: {tool: write_file, input: {file_path: "{path}", content: "INT-7"}}
        - {when: {tool: write_file}, say: "{result}"}
        - {when: {tool: delegate}, say: "{result}"}
tools: [{module: tool-filesystem}, {module: tool-delegate}]
hooks:
  - module: hooks-shell
    config: {hooks: {PreToolUse: [{matcher: Write, hooks: [{command: "! grep -q parent.txt || exit 2"}]}]}}
  - module: hooks-approval
    config: {policy_driven_only: true, rules: [{tool: write_file, pattern: "*parent.md", action: deny}]}
agents:
  clerk:
    instruction: You are the clerk.
    RUNNER
    hooks:
      - module: hooks-shell
        config: {hooks: {PreToolUse: [{matcher: Write, hooks: [{command: "! grep -q clerk.txt || exit 2"}]}]}}
      - module: hooks-approval
        config: {policy_driven_only: true, rules: [{tool: write_file, pattern: "*clerk.md", action: deny}]}
---
"""


def hooks_of(own: Any, parent: Any, inherit: Any = True) -> list[dict[str, Any]]:
    plan = child_config({"hooks": own}, {"hooks": parent}, providers=True, tools=True, hooks=inherit)
    hooks: list[dict[str, Any]] = plan["hooks"]
    return hooks


def test_a_child_has_the_guard_of_its_parent_and_its_own_one() -> None:
    parent, own = ({"module": "hooks-shell", "config": {"on_error": each}} for each in ("deny", "continue"))
    assert hooks_of([own], [parent]) == [{**parent, "inherited": True}, {**own, "instance_id": "own-1"}]
    assert hooks_of([parent], [parent]) == [{**parent, "inherited": True}]
    third = {"module": "hooks-shell", "config": {"max_stop_blocks": 1}}
    grandchild = hooks_of([third], hooks_of([own], [parent]))
    assert [each.get("instance_id") for each in grandchild] == [None, "own-1", "own-2"]
    assert [each.get("inherited") for each in grandchild] == [True, True, None]


def test_another_hook_is_the_parents_alone() -> None:
    parent, own = ({"module": "hooks-logging", "config": {"path": each}} for each in "ab")
    assert hooks_of([own], [parent]) == [{**parent, "inherited": True}]
    assert hooks_of([own], [parent], False) == [own]


@pytest.mark.parametrize("runner", ["", "runner: subprocess"])
def test_the_guards_of_an_agent_and_of_its_parent_both_hold(tmp_path: Path, runner: str) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE.replace("RUNNER", runner))
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home"), "AMPLIFIER_TRUST": "1"}

    def run(prompt: str) -> str:
        ran = forks.run(("run", "--json", prompt), cwd=tmp_path, env=environment)
        assert ran.returncode == 0, ran.stderr
        return str(json.loads(ran.stdout)["data"])

    files = ["parent.txt", "clerk.txt", "parent.md", "clerk.md", "free.txt"]
    for name in files:
        run(f"ask {name}")
    assert [name for name in files if (tmp_path / name).exists()] == ["free.txt"]
    run("order clerk.txt")
    run("order clerk.md")
    assert [name for name in files if (tmp_path / name).exists()] == ["clerk.txt", "clerk.md", "free.txt"]
