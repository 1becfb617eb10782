"""Guards of background sessions: commands that deny, and rules whose questions wait in the inbox."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.cli import exits, invoke
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
        - {when: {user: order}, call: {tool: write_file, input: {file_path: note.txt, content: noted}}}
        - {when: {user: ask}, call: {tool: delegate, input: {agent: clerk, instruction: order}}}
        - {when: {tool: write_file}, say: "{result}"}
        - {when: {tool: delegate}, say: "{result}"}
tools: [{module: tool-filesystem}, {module: tool-delegate}]
agents:
  clerk: {instruction: "You are the clerk."}
hooks: [HOOK]
background_sessions:
  - name: orders
    triggers: [{module: trigger-manual}]
    instruction: PROMPT
    runner: RUNNER
    retry: {delay: 0.01}
---
"""
APPROVAL = "{module: hooks-approval}"
SHELL = """{module: hooks-shell, config: {hooks: {
  PreToolUse: [{matcher: Write, hooks: [{command: "sh $AMPLIFIER_BUNDLE_DIR/guard.sh"}]}],
  Stop: [{hooks: [{command: "echo Stop >> seen"}]}],
  SubagentStop: [{hooks: [{command: "echo SubagentStop >> seen"}]}]}}}"""


class Shop:
    """A folder with a background session that writes a note."""

    def __init__(self, folder: Path, hook: str, runner: str, prompt: str) -> None:
        self.folder = folder
        text = BUNDLE.replace("HOOK", hook).replace("RUNNER", runner).replace("PROMPT", prompt)
        (folder / "bundle.md").write_text(text)
        (folder / "guard.sh").write_text("cat >> asked; echo no notes >&2; exit 2\n")

    def json(self, *arguments: str) -> Any:
        with redirect_stdout(StringIO()) as out:
            assert invoke([*arguments, "--json"]) == exits.OK
        return json.loads(out.getvalue())["data"]

    def up(self) -> None:
        ran = forks.run(("up", "--once"), cwd=self.folder)
        assert ran.returncode == (exits.FAILED if self.json("approvals", "list") else exits.OK), ran.stderr

    def order(self) -> None:
        with redirect_stdout(StringIO()):
            assert invoke(["trigger", "fire", "orders"]) == exits.OK
        self.up()

    def results(self) -> list[str]:
        """Return the results of all calls of tools that write."""
        sessions = [each["session_id"] for each in self.json("session", "list")]
        messages = [message for each in sessions for message in self.json("session", "show", each)["messages"]]
        return [str(each["content"]) for each in messages if each.get("name") == "write_file"]


@pytest.mark.parametrize("runner", ["inprocess", "subprocess"])
@pytest.mark.parametrize("prompt", ["order", "ask"])
def test_a_command_guards_a_background_session_and_its_agents(
    project: Path, home: Path, runner: str, prompt: str
) -> None:
    shop = Shop(project, SHELL, runner, prompt)
    shop.order()
    assert not (project / "note.txt").exists()
    asked = json.loads((project / "asked").read_text())
    assert (asked["tool_name"], asked["tool_input"]["file_path"]) == ("Write", "note.txt")
    assert shop.results() == ["Denied by hook: no notes"]
    assert (project / "seen").read_text().split() == (["SubagentStop"] if prompt == "ask" else []) + ["Stop"]


@pytest.mark.parametrize("runner", ["inprocess", "subprocess"])
@pytest.mark.parametrize("prompt", ["order", "ask"])
def test_a_question_of_a_rule_waits_in_the_inbox(project: Path, home: Path, runner: str, prompt: str) -> None:
    shop = Shop(project, APPROVAL, runner, prompt)
    shop.order()
    assert not (project / "note.txt").exists()
    [asked] = shop.json("approvals", "list")
    assert (asked["tool"], asked["arguments"]) == ("write_file", {"file_path": "note.txt", "content": "noted"})
    assert asked["reason"] == "hooks-approval asks about this tool"
    shop.json("approvals", "approve", asked["id"])
    shop.up()
    assert (project / "note.txt").read_text() == "noted"
    assert shop.json("approvals", "list") == []


def test_a_script_that_changes_stops_the_deliveries_until_it_is_trusted(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    shop = Shop(project, SHELL, "inprocess", "order")
    with redirect_stdout(StringIO()):
        assert invoke(["trust", "-y"]) == exits.OK
    shop.order()
    (project / "guard.sh").write_text("cat >/dev/null\n")
    with redirect_stdout(StringIO()):
        assert invoke(["trigger", "fire", "orders"]) == exits.OK
    ran = forks.run(("up", "--once"), cwd=project)
    assert ran.returncode == exits.WAITING
    assert "has changed since it was trusted (guard.sh)" in ran.stderr
    assert not (project / "note.txt").exists()


def test_a_session_that_rewrites_the_script_of_a_hook_never_has_it_run(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    hook = '{module: hooks-shell, config: {hooks: {Stop: [{hooks: [{command: "sh ./hook.sh"}]}]}}}'
    shop = Shop(project, hook, "inprocess", "order")
    text = (project / "bundle.md").read_text().replace("note.txt", "hook.sh").replace("noted", "echo evil >> ran")
    (project / "bundle.md").write_text(text)
    (project / "hook.sh").write_text("echo good >> ran\n")
    with redirect_stdout(StringIO()):
        codes = [invoke(each) for each in (["trust", "-y"], *[["trigger", "fire", "orders"]] * 2)]
    assert codes == [exits.OK] * 3
    ran = forks.run(("up", "--once"), cwd=project)
    assert "hook.sh has changed since the session began" in ran.stderr
    [orders] = shop.json("ps")["background_sessions"]
    assert (orders["done"], orders["waiting"]) == (1, 1), "the second one waits for trust"
    assert "evil" in (project / "hook.sh").read_text()
    assert not (project / "ran").exists()
    assert len(shop.results()) == 1
