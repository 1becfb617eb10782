"""The commands, on real bundles and a real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke

BUNDLE = """---
bundle: {name: echo}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^list'}
          call: {tool: glob, input: {pattern: "*.md"}}
        - when: {tool: glob}
          say: "found it"
      otherwise: {say: "You said: {prompt}"}
tools: [{module: tool-filesystem}]
background_sessions:
  - {name: manual}
---
Answer.
"""

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def bundle(project: Path) -> Path:
    path = project / "bundle.md"
    path.write_text(BUNDLE, encoding="utf-8")
    return path


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert invoke([*arguments, "--json"]) == exits.OK
    envelope = json.loads(capsys.readouterr().out)
    assert envelope["schema"].startswith("amplifier/")
    return envelope["data"]


def sessions(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = data(capsys, "session", "list")
    return listed


def test_a_turn_answers_on_stdout_and_names_its_session_on_stderr(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", "hello"]) == exits.OK
    out, err = capsys.readouterr()
    assert out == "You said: hello\n"
    [record] = sessions(capsys)
    assert f"session {record['session_id']}" in err
    assert (record["status"], record["turn_count"], record["message_count"]) == ("completed", 1, 2)


def test_a_provider_that_exits_does_not_end_the_program_with_its_code(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "leaving.py").write_text(
        "import sys\n\nclass Leaving:\n    name = 'leaving'\n\n    def get_info(self):\n        return None\n\n"
        "    async def complete(self, request, **kwargs):\n        sys.exit(3)\n\n"
        "async def mount(coordinator, config):\n    await coordinator.mount('providers', Leaving())\n"
    )
    (project / "bundle.md").write_text(
        "---\nbundle: {name: leaving}\nproviders: [{module: provider-leaving, source: ./leaving.py}]\n---\nYou help.\n"
    )
    assert invoke(["run", "hello"]) == exits.FAILED
    err = capsys.readouterr().err
    assert "leaving.py, line 10: it called exit(3), which a module may not do" in err


def test_a_tool_that_cancels_the_task_of_its_turn_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "ending.py").write_text(
        "import asyncio\n\nclass Ending:\n    name = description = 'ending'\n    input_schema = {'type': 'object'}\n\n"
        "    async def execute(self, input):\n        asyncio.current_task().cancel()\n"
        "        await asyncio.sleep(0)\n\n"
        "async def mount(coordinator, config):\n    await coordinator.mount('tools', Ending())\n"
    )
    (project / "bundle.md").write_text(
        "---\nbundle: {name: ending}\ntools: [{module: tool-ending, source: ./ending.py}]\nproviders: [{module: "
        "provider-playbook, config: {rules: [{when: {user: go}, call: {tool: ending, input: {}}}]}}]\n---\nYou help.\n"
    )
    assert invoke(["run", "go"]) == exits.FAILED
    err = capsys.readouterr().err
    assert "ending.py, line 9: it raised CancelledError, and nobody has cancelled its work" in err
    assert "Traceback" not in err
    [record] = sessions(capsys)
    assert record["status"] == "interrupted"


def test_tool_calls_are_recorded_with_their_results(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "list them"]) == exits.OK
    [record] = sessions(capsys)
    messages = data(capsys, "session", "show", record["session_id"][:10])["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert "bundle.md" in messages[2]["content"]


def test_quiet_says_nothing_but_the_answer(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["-q", "run", "list them"]) == exits.OK
    assert capsys.readouterr() == ("found it\n", "")


def test_a_session_is_resumed_and_forked_at_a_turn(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = data(capsys, "run", "one")["session_id"]
    assert data(capsys, "run", "two", "--resume", first[:8])["turn_count"] == 2
    fork = data(capsys, "session", "fork", f"{first}@1")
    assert (fork["fork_of"], fork["fork_at"], fork["status"], fork["turn_count"]) == (first, 2, "idle", 1)
    other = data(capsys, "run", "three", "--fork", f"{first}@1")
    assert other["turn_count"] == 2
    texts = [message["content"] for message in data(capsys, "session", "show", other["session_id"])["messages"]]
    assert [text if isinstance(text, str) else text[0]["text"] for text in texts][::2] == ["one", "three"]
    assert data(capsys, "session", "show", first)["message_count"] == 4


def test_the_tree_shows_forks_below_their_source(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = data(capsys, "run", "one")["session_id"]
    fork = data(capsys, "session", "fork", first)["session_id"]
    [root] = data(capsys, "session", "tree", first)
    assert [child["session_id"] for child in root["children"]] == [fork]
    capsys.readouterr()
    assert invoke(["session", "tree"]) == exits.OK
    drawn = capsys.readouterr().out
    assert f"└── {fork}  idle  1 turn, 2 messages  fork of {first}, shares m1\N{EN DASH}m2" in drawn


def test_a_tree_has_a_bound_and_says_what_it_leaves_out(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (data(capsys, "run", prompt)["session_id"] for prompt in ("one", "two"))
    fork = data(capsys, "session", "fork", first)["session_id"]
    [root] = data(capsys, "session", "tree", "-n", "1")
    assert (root["session_id"], root["children"][0]["session_id"]) == (first, fork), "with those above it"
    capsys.readouterr()
    assert invoke(["session", "tree", first, "--limit", "1"]) == exits.OK
    shown = capsys.readouterr()
    assert fork not in shown.out
    assert shown.err == "The first 1 of this tree are shown, and there are more: -n 10\n"
    assert invoke(["session", "tree", "--limit", "2"]) == exits.OK
    assert capsys.readouterr().err == "The last changed 2 are shown, and there are more: -n 20\n"
    assert {each["session_id"] for each in data(capsys, "session", "tree")} == {first, second}


def test_sessions_of_other_folders_are_shown_when_asked_for(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data(capsys, "run", "one")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert sessions(capsys) == []
    assert len(data(capsys, "session", "list", "--all")) == 1
    assert invoke(["session", "list"]) == exits.OK
    assert "amplifier session list --all" in capsys.readouterr().err


def test_the_prompt_may_come_from_stdin(bundle: Path, amplifier: Any) -> None:
    for arguments in (("run", "-"), ("run",)):
        done = amplifier(*arguments, stdin="from a pipe")
        assert (done.returncode, done.stdout) == (0, "You said: from a pipe\n")


def test_firing_by_hand_is_handled_by_the_next_up(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trigger", "fire", "manual", "--data", '{"n": 7}']) == exits.OK
    assert "waits for the next: amplifier up" in capsys.readouterr().err
    [row] = data(capsys, "trigger", "list")
    assert (row["background_session"], row["trigger"], row["waiting"], row["done"]) == ("manual", "by hand", 1, 0)
    assert invoke(["up", "--once"]) == exits.OK
    [row] = data(capsys, "trigger", "list")
    assert (row["waiting"], row["done"]) == (0, 1)
    [child] = data(capsys, "session", "tree")[0]["children"]
    assert child["status"] == "completed"
    assert child["woken_by"]["summary"] == "by hand"
    messages = data(capsys, "session", "show", child["session_id"])["messages"]
    assert '"n": 7' in messages[0]["content"]


def test_a_session_that_only_a_hand_wakes_is_told_what_its_trigger_says(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_hand = "{name: notes, triggers: [{module: trigger-manual, instruction_template: 'Release {version}'}]}"
    (project / "bundle.md").write_text(BUNDLE.replace("{name: manual}", by_hand), encoding="utf-8")
    assert invoke(["trigger", "fire", "notes", "--data", '{"version": "1.2"}']) == exits.OK
    assert invoke(["up", "--once"]) == exits.OK
    [child] = data(capsys, "session", "tree")[0]["children"]
    messages = data(capsys, "session", "show", child["session_id"])["messages"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["Release 1.2"]


def test_a_dry_run_says_what_would_run_and_runs_nothing(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["up", "--dry-run"]) == exits.OK
    assert "echo/manual: pool_size 1, woken by amplifier trigger fire, only" in capsys.readouterr().out
    assert sessions(capsys) == []


def test_nothing_runs_until_something_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["ps"]) == exits.OK
    assert "amplifier up" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["", "bundle", "config", "plugin", "service", "session", "store", "trigger"])
def test_the_summary_of_each_command_is_a_whole_sentence(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*group.split(), "--help"]) == exits.OK
    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert listed
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("arguments", [["config", "show"], ["config", "show", "--json"], ["--help"]])
def test_a_reader_that_has_seen_enough_is_no_failure(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "amplifier_foundation", *arguments]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (exits.OK, b"")
