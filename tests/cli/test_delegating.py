"""A session that has three others work at once: by an agent's name, as itself, and from a git repository."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.settings import write_setting
from tests import forks

BUNDLE = """---
bundle: {{name: lead}}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {{user: '^ask'}}
          call:
            - {{tool: delegate, input: {{agent: reviewer, instruction: wait for review}}}}
            - tool: delegate
              input: {{agent: self, instruction: wait for self, context_depth: all, context_scope: full}}
            - {{tool: delegate, input: {{agent: "{uri}", instruction: "what was?"}}}}
        - when: {{user: '^wait for (?P<what>\\w+)'}}
          call: {{tool: wait, input: {{what: "{{what}}"}}}}
        - when: {{tool: wait}}
          say: "waited for {{what}}"
        - when: {{tool: delegate}}
          say: "The last of three: {{response}}"
      otherwise: {{say: "You said: {{prompt}}"}}
tools:
  - {{module: wait, source: ./modules/wait.py}}
  - {{module: tool-delegate, config: {{uris: true}}}}
agents:
  reviewer: {{description: Reads files., instruction: Read.}}
---
You lead.
"""
HISTORIAN = """---
bundle: {name: historian}
providers: [{module: provider-playbook, config: {otherwise: {say: "The past says: {prompt}"}}}]
---
You know the past.
"""


@pytest.fixture(autouse=True)
def bundle(project: Path, modules: Path, home: Path, tmp_path: Path) -> str:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "bundle.md").write_text(HISTORIAN, encoding="utf-8")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *arguments], cwd=repository, check=True)
    uri = f"git+file://{repository}@main"
    (project / "bundle.md").write_text(BUNDLE.format(uri=uri), encoding="utf-8")
    write_setting("user", "permissions.allow", ["delegate(git+file:*)"])
    return uri


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    code = invoke(arguments)
    out, err = capsys.readouterr()
    assert code == exits.OK, err
    return out


def tree(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the session that leads, and those below it by the agent that they are."""
    [root] = json.loads(told(capsys, "session", "tree", "--json"))["data"]
    return root, {child["agent"]: child for child in root["children"]}


def test_the_tree_shows_who_made_whom_what_was_inherited_and_what_it_cost(
    bundle: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "go").touch()
    facts = [json.loads(line) for line in told(capsys, "run", "--jsonl", "ask three").splitlines()]
    lead, result = facts[0]["session_id"], facts[-1]
    assert (result["status"], result["output"]) == ("completed", "The last of three: The past says: what was?")
    assert result["usage"]["requests"] == 2 + 2 + 2 + 1
    told_of = [(fact["name"], fact["status"]) for fact in facts if fact["type"] == "child"]
    assert sorted(told_of) == [(n, s) for n in ("historian", "lead", "reviewer") for s in ("completed", "running")]
    calls = [fact["id"] for fact in facts if fact["type"] == "tool"]
    messages = json.loads(told(capsys, "session", "show", lead, "--json"))["data"]["messages"]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == calls

    root, children = tree(capsys)
    assert set(children) == {"reviewer", "self", bundle}
    assert {child["parent_id"] for child in children.values()} == {lead}
    assert {child["status"] for child in children.values()} == {"completed"}
    assert (children["self"]["fork_of"], children["self"]["fork_at"]) == (lead, 1)
    assert [child["usage"]["requests"] for child in root["children"]] == [2, 2, 1]
    assert (root["usage"]["requests"], root["usage"]["cost_usd"]) == (7, "0")
    assert all(0 < child["duration"] < root["duration"] for child in children.values())
    drawn = told(capsys, "session", "tree")
    assert f"agent self  fork of {lead}, shares m1\n" in drawn
    assert drawn.count(", $0") == 4


@pytest.fixture
def begun(project: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, when two of the three wait for the file `go`."""
    process = forks.Popen(
        ["run", "ask three"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    awaited = {"begun review", "begun self", "⤷ historian completed"}
    for line in process.stderr:
        words = line.split()
        awaited -= {line.strip(), " ".join([*words[:2], *words[3:4]]).rstrip(",")}
        if not awaited:
            break
    assert not awaited
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("how", ["graceful", "immediate", "killed"])
def test_what_was_interrupted_anywhere_is_gone_on_with(
    how: str, bundle: str, begun: subprocess.Popen[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert begun.stderr is not None
    if how == "killed":
        begun.kill()
        assert begun.wait(60) == -signal.SIGKILL
    else:
        begun.send_signal(signal.SIGINT)
        assert any("stopping after this step" in line for line in begun.stderr)
        if how == "graceful":
            (project / "go").touch()
        else:
            begun.send_signal(signal.SIGINT)
        assert begun.wait(60) == (exits.CANCELLED if how == "graceful" else exits.INTERRUPTED)
    root, children = tree(capsys)
    status = "interrupted" if how == "killed" else "cancelled"
    assert (root["status"], children["reviewer"]["status"], children["self"]["status"]) == (status,) * 3
    assert children[bundle]["status"] == "completed"
    assert len(list(project.glob("ended-*"))) == (2 if how == "graceful" else 0)

    (project / "go").touch()
    answer = json.loads(told(capsys, "run", "--resume", root["session_id"], "--json", ""))["data"]
    assert (answer["status"], answer["turn_count"]) == ("completed", 1)
    assert answer["output"].startswith("The last of three:")
    assert tree(capsys)[0]["status"] == "completed"
    if how == "killed":
        messages = json.loads(told(capsys, "session", "show", root["session_id"], "--json"))["data"]["messages"]
        cut = [json.loads(message["content"]) for message in messages if message["role"] == "tool"][:3]
        assert [result["session_id"] for result in cut] == [
            children[agent]["session_id"] for agent in ("reviewer", "self", bundle)
        ]
        assert [result.get("response") for result in cut] == [None, None, "The past says: what was?"]
