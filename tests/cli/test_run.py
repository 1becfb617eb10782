"""`amplifier run` for one turn."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from tests import forks
from tests.programs import require

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: echo}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^wait for (?P<what>\\w+)'}
          say: "I wait."
          call: {tool: wait, input: {what: "{what}"}}
        - when: {user: '^write'}
          call: {tool: write_file, input: {file_path: hello.txt, content: hello}}
        - when: {user: '^fail'}
          say: "{nothing}"
        - when: {tool: wait}
          say: "waited for {what}"
        - when: {tool: write_file}
          say: "{result}"
      otherwise: {say: "You said: {prompt}"}
tools:
  - {module: tool-filesystem}
  - {module: wait, source: ./modules/wait.py}
hooks:
  - {module: ask, source: ./modules/ask.py}
---
Answer.
"""


@pytest.fixture(autouse=True)
def bundle(project: Path, modules: Path, home: Path) -> Path:
    path = project / "bundle.md"
    path.write_text(BUNDLE, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("closed", "answer"), [(">&-", ""), ("2>&-", "You said: hi\n"), ("<&-", "You said: hi\n"), ("<&- >&- 2>&-", "")]
)
def test_a_closed_stream_is_as_dev_null(closed: str, answer: str) -> None:
    for command, out in (("run hi", answer), ("ps", "")):
        script = f"{shlex.quote(sys.executable)} -m amplifier_foundation {command} {closed}"
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (exits.OK, out), done.stderr
        assert "Error" not in done.stderr


@pytest.fixture
def started() -> Iterator[Any]:
    """Begins the program as a process that has no terminal and is killed with the test, or when that takes too long."""
    begun: list[tuple[subprocess.Popen[str], Timer]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = forks.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        limit = Timer(60, process.kill)
        limit.start()
        begun.append((process, limit))
        return process

    yield start
    for process, limit in begun:
        limit.cancel()
        process.kill()
        process.communicate()


def told(capsys: pytest.CaptureFixture[str], *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    capsys.readouterr()
    with TemporaryFile("w+", encoding="utf-8") as file, pytest.MonkeyPatch.context() as patch:
        file.write(stdin)
        file.seek(0)
        patch.setattr(sys, "stdin", file)
        code = invoke(arguments)
    return code, *capsys.readouterr()


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = told(capsys, *arguments, "--json")
    assert code == exits.OK, err
    return json.loads(out)["data"]


def until(stream: Any, text: str) -> None:
    assert any(text in line for line in stream), f"{text!r} did not come"


def test_stdin_is_the_prompt_or_goes_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "-q", "run", stdin="hello\n") == (exits.OK, "You said: hello\n\n", "")
    assert told(capsys, "-q", "run", "-", stdin="hello")[1] == "You said: hello\n"
    assert told(capsys, "-q", "run", "add", stdin="1\n2\n")[1] == "You said: add\n\n<stdin>\n1\n2\n</stdin>\n"
    code, out, err = told(capsys, "-q", "run", "read", stdin="x" * 1024 * 1024 + "yz")
    assert code == exits.OK
    assert out.endswith("x\n[cut here, after 1,048,576 bytes]\n</stdin>\n")
    assert "the first 1,048,576 bytes of stdin are appended to the prompt" in err
    code, out, err = told(capsys, "run", stdin=" \n")
    assert (code, out) == (exits.USAGE, "")
    assert "the prompt is empty" in err


def test_what_a_session_took_is_kept_from_turn_to_turn_and_not_by_a_fork(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    named = ("--name", "Sums", "--working-dir", str(elsewhere), "-b", "bundle.md")
    first = data(capsys, "run", "one", *named)
    assert (first["status"], first["turn_count"], first["usage"]["requests"]) == ("completed", 1, 1)
    second = data(capsys, "run", "two", "--resume", first["session_id"][:9])
    assert (second["session_id"], second["turn_count"]) == (first["session_id"], 2)
    assert second["usage"]["requests"] == 1
    data(capsys, "run", "three", "--resume", first["session_id"])
    forked = data(capsys, "run", "four", "--fork", f"{first['session_id']}@2", "--name", "Other")
    assert forked["turn_count"] == 3

    assert data(capsys, "session", "tree") == []
    [root] = data(capsys, "session", "tree", "--all")
    assert (root["name"], root["project"], root["turn_count"]) == ("Sums", str(elsewhere), 3)
    assert (root["usage"]["requests"], root["agent"]) == (3, None)
    [fork] = root["children"]
    assert (fork["name"], fork["fork_at"], fork["usage"]["requests"]) == ("Other", 4, 1)
    assert min(fork["duration"], root["duration"]) > 0
    drawn = told(capsys, "session", "tree", "--all")[1]
    assert f"fork of {root['session_id']}, shares m1\N{EN DASH}m4" in drawn
    assert ", $0" in drawn


def test_lines_tell_what_happens_as_it_does_and_last_the_result(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    (project / "go").touch()
    code, out, err = told(capsys, "run", "--jsonl", "wait for it")
    assert (code, err) == (exits.OK, "begun it\n")
    facts = [json.loads(line) for line in out.splitlines()]
    kinds = ["session", "usage", "text", "tool", "tool_result", "usage", "text", "result"]
    assert [fact["type"] for fact in facts] == kinds
    assert (facts[3]["name"], facts[3]["input"]) == ("wait", {"what": "it"})
    assert (facts[4]["ok"], facts[4]["output"]) == (True, {"waited": "it"})
    result = facts[-1]
    assert (result["output"], result["status"], result["error"]) == ("waited for it", "completed", None)
    assert result["session_id"] == facts[0]["session_id"]

    code, out, err = told(capsys, "run", "--jsonl", "fail")
    facts = [json.loads(line) for line in out.splitlines()]
    assert code == exits.FAILED
    assert [fact["type"] for fact in facts] == ["session", "error", "result"]
    assert (facts[-1]["status"], facts[-1]["error"]) == ("failed", facts[1]["message"])
    code, out, err = told(capsys, "run", "--json", "fail")
    assert (code, json.loads(out)["data"]["status"]) == (exits.FAILED, "failed")
    assert json.loads(out)["data"]["error"] in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--json", "--jsonl", "x"], "--json and --jsonl exclude each other"),
        (["run", "--resume", "a", "--fork", "b", "x"], "--resume and --fork exclude each other"),
        (["run", "--resume", "abcd", "--working-dir", ".", "x"], "--working-dir is for a new session"),
        (["run", "--fork", "abcd@x", "x"], "after '@' write the number of a turn"),
        (["run", "  "], "the prompt is empty"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = told(capsys, *arguments)
    assert (code, out) == (exits.USAGE, "")
    assert message in err


def test_where_nobody_can_be_asked_an_approval_is_denied_and_said(started: Any, project: Path) -> None:
    process = started("run", "--json", "write")
    out, err = process.communicate(timeout=60)
    assert process.returncode == exits.WAITING
    assert "asks: Write hello.txt?\namplifier: there is no terminal to answer at: denied" in err
    result = json.loads(out)["data"]
    assert result["unanswered"] == ["Write hello.txt?"]
    assert "Denied by hook" in result["output"]
    assert not (project / "hello.txt").exists()


def test_a_hangup_that_is_ignored_stays_so(project: Path) -> None:
    argv = [require("nohup"), sys.executable, "-m", "amplifier_foundation", "run", "wait for one"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1, text=True) as process:
        until(process.stderr, "begun")
        process.send_signal(signal.SIGHUP)
        (project / "go").touch()
        assert process.wait(60) == exits.OK


def test_a_turn_that_was_stopped_or_killed_is_gone_on_with(
    started: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, cut, killed = (started("run", f"wait for {what}") for what in ("one", "two", "three"))
    for process in (asked, cut, killed):
        until(process.stderr, "begun")
    os.kill(killed.pid, signal.SIGKILL)
    for process in (asked, cut):
        process.send_signal(signal.SIGINT)
        until(process.stderr, "stopping after this step; Ctrl-C again stops now")
    cut.send_signal(signal.SIGINT)
    assert cut.wait(60) == exits.INTERRUPTED
    assert "amplifier: stopped; continue with: amplifier run --resume echo-" in cut.stderr.read()
    assert killed.wait(60) == -signal.SIGKILL
    (project / "go").touch()
    assert asked.wait(60) == exits.CANCELLED
    assert [path.name for path in project.glob("ended-*")] == ["ended-one"]

    states = {}
    for record in data(capsys, "session", "list"):
        prompt = data(capsys, "session", "show", record["session_id"])["messages"][0]["content"]
        states[prompt] = (record["session_id"], record["status"])
    assert {prompt: status for prompt, (_, status) in states.items()} == {
        "wait for one": "cancelled",
        "wait for two": "cancelled",
        "wait for three": "interrupted",
    }
    for prompt, (session_id, _) in states.items():
        code, out, err = told(capsys, "-q", "run", "--resume", session_id)
        assert (code, out) == (exits.OK, f"waited for {prompt.split()[-1]}\n")
    assert {record["turn_count"] for record in data(capsys, "session", "list")} == {1}
    code, out, err = told(capsys, "run", "--resume", session_id)
    assert (code, out) == (exits.USAGE, "")
    assert "the last turn was not interrupted; give a prompt" in err
