"""Commands whose output has no reader any more, or no room."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click
import pytest

from amplifier_foundation.cli import cli, exits, invoke
from tests import forks

BUNDLE = """---
bundle: {name: waits}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^fail'}
          say: "{nothing}"
        - when: {user: '^once'}
          call: {tool: wait, input: {what: once}}
        - when: {tool: wait, where: {waited: once}}
          say: "waited"
        - when: {user: '^for ever'}
          call: {tool: wait, input: {what: ever}}
        - when: {tool: wait}
          call: {tool: wait, input: {what: ever}}
      otherwise: {say: "You said: {prompt}"}
tools: [{module: wait, source: ./modules/wait.py}]
---
Answer.
"""


@pytest.fixture(autouse=True)
def bundle(project: Path, modules: Path, home: Path) -> None:
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (project / "go").touch()


def amplifier(*arguments: str, out: Any, err: Any) -> int:
    process = forks.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    try:
        return process.wait(60)
    finally:
        process.kill()


def read_last(capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert invoke(["session", "show", "last", "--json"]) == exits.OK
    return json.loads(capsys.readouterr().out)["data"]


@pytest.fixture
def unread() -> Any:
    """A pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize("streams", ["stdout of --jsonl", "stderr", "both"])
def test_a_turn_that_nobody_reads_is_stopped_in_order(
    streams: str, unread: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--jsonl"] if streams == "stdout of --jsonl" else []
    with (tmp_path / "told").open("w+", encoding="utf-8") as told:
        out = told if streams == "stderr" else unread
        err = told if streams == "stdout of --jsonl" else unread
        assert amplifier("run", *options, "for ever", out=out, err=err) == exits.CANCELLED
        told.seek(0)
        text = told.read()
    session = read_last(capsys)
    assert session["status"] == "cancelled"
    assert "refused" not in text
    assert "Denied" not in json.dumps(session["messages"])
    if streams == "stdout of --jsonl":
        last = f"stopped, for nobody reads its output; continue with: amplifier run --resume {session['session_id']}\n"
        assert text == f"nobody reads the output: stopping after this step; Ctrl-C stops now\namplifier: {last}"


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the size of a pipe cannot be set here")
@pytest.mark.parametrize("options", [["run"], ["run", "--json"], ["run", "--jsonl"], ["session", "show", "last"]])
def test_all_is_written_into_a_pipe_that_does_not_block_and_is_read_slowly(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = "word " * 20_000
    if options[0] == "session":
        assert invoke(["run", prompt]) == exits.OK
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    process = forks.Popen(options, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.DEVNULL, text=True)
    os.close(writing)
    assert process.stdin is not None
    process.stdin.write(prompt if options[0] == "run" else "")
    process.stdin.close()
    told = b"".join(iter(lambda: os.read(reading, 1), b"")).decode()  # there is room when a whole page is read
    os.close(reading)
    assert process.wait(60) == exits.OK
    assert prompt.strip() in told
    assert told.endswith("\n")
    if "--json" in options:
        assert json.loads(told)["data"]["output"] == f"You said: {prompt}"


@pytest.mark.parametrize("option", ["--json", "-q"])
def test_a_turn_that_has_ended_before_its_reader_is_missed_keeps_its_exit_code(
    option: str, unread: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for prompt, code in (("hi", exits.OK), ("fail", exits.FAILED)):
        arguments = ("run", "--json", prompt) if option == "--json" else ("-q", "run", prompt)
        assert amplifier(*arguments, out=unread, err=unread) == code
    assert read_last(capsys)["status"] == "failed"


def test_a_failed_run_of_a_workflow_that_nobody_reads_is_no_success(unread: int, project: Path) -> None:
    steps = "workflows: {all: {steps: [{id: one, agent: self, prompt: hi}, {id: two, agent: self, prompt: fail}]}}\n"
    (project / "bundle.md").write_text(BUNDLE.replace("tools:", f"{steps}tools:"), encoding="utf-8")
    for options in ([], ["--json"]):
        assert amplifier("flow", "run", *options, out=unread, err=unread) == exits.FAILED


@pytest.mark.parametrize("command", ["show last", "show last --follow", "show last --trace", "list", "tree"])
def test_a_list_that_nobody_reads_to_its_end_is_no_failure(
    command: str, unread: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", "hi"]) == exits.OK
    assert amplifier("session", *command.split(), out=unread, err=subprocess.DEVNULL) == exits.OK


def test_a_server_beside_tasks_that_nobody_reads_is_no_failure(unread: int, tmp_path: Path) -> None:
    with (tmp_path / "told").open("w+", encoding="utf-8") as told:
        assert amplifier("dashboard", "--port", "0", out=unread, err=told) == exits.OK
        told.seek(0)
        assert told.read() == ""


DONE = "it is done, but a part of the output could not be written (No space left on device)"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("option", ["--jsonl", "--json"])
def test_a_turn_whose_output_has_no_room_does_its_work_and_says_so(
    option: str, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full, (tmp_path / "told").open("w+", encoding="utf-8") as told:  # noqa: PTH123 - the file must not be made
        assert amplifier("run", option, "once", out=full, err=told) == exits.UNREPORTED
        told.seek(0)
        assert f"amplifier: {DONE}\n" in told.read()
    assert (project / "ended-once").exists()
    assert read_last(capsys)["status"] == "completed"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("streams", ["stdout", "both"])
def test_a_change_whose_report_has_no_room_is_made_whole_and_not_to_be_repeated(
    streams: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for prompt in ("one", "two", "three"):
        assert invoke(["run", prompt]) == exits.OK
    with open("/dev/full", "w") as full, (tmp_path / "told").open("w+", encoding="utf-8") as told:  # noqa: PTH123 - the file must not be made
        err = told if streams == "stdout" else full
        for command in ("session prune --keep 1 --yes", "session fork last"):
            assert amplifier(*command.split(), out=full, err=err) == exits.UNREPORTED
        told.seek(0)
        text = told.read()
    assert text.count(f"amplifier: {DONE}\n") == (2 if streams == "stdout" else 0)
    capsys.readouterr()
    assert invoke(["session", "list", "--json"]) == exits.OK
    listed = json.loads(capsys.readouterr().out)["data"]
    assert [each["parent_id"] is not None for each in listed] == [True, False]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("command", ["session delete last", "trust"])
def test_a_question_that_cannot_be_shown_is_not_answered(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", "hi"]) == exits.OK
    monkeypatch.delenv("AMPLIFIER_TRUST", raising=False)
    side, other = pty.openpty()
    os.write(side, b"y\n")
    with open("/dev/full", "w") as no_room:  # noqa: PTH123 - the file must not be made
        process = forks.Popen(command.split(), stdin=other, stdout=other, stderr=no_room, start_new_session=True)
        try:
            assert process.wait(60) == exits.TRY_AGAIN
        finally:
            process.kill()
            os.close(side)
            os.close(other)
    assert invoke(["trust", "--list"]) == exits.OK
    assert capsys.readouterr().err.endswith("Nothing is trusted yet.\n")
    assert read_last(capsys)["status"] == "completed"


def test_a_question_about_what_was_not_shown_is_not_asked(tmp_path: Path) -> None:
    script = """
import click, resource
from amplifier_foundation.cli import questions, streams
streams.wait_for_readers()
streams.goes_on = True
room = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (0, room))
click.echo("It would run: this", err=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
try:
    print(questions.ask_to_confirm("Trust it?"))
except OSError as error:
    print(error is streams.lost, streams.goes_on, error.strerror)
"""
    with (tmp_path / "err").open("w+") as err:
        program = [sys.executable, "-c", script]
        ran = subprocess.run(program, input="y\n", stdout=subprocess.PIPE, stderr=err, text=True, check=True)
        err.seek(0)
        assert (ran.stdout, err.read()) == ("True False File too large\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("command", ["run --json once", "ps", "session fork last"])
def test_what_stderr_has_no_room_for_changes_no_code(command: str, tmp_path: Path) -> None:
    assert invoke(["run", "hi"]) == exits.OK
    with open("/dev/full", "w") as full, (tmp_path / "told").open("w+", encoding="utf-8") as told:  # noqa: PTH123 - the file must not be made
        assert amplifier(*command.split(), out=told, err=full) == exits.OK


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_background_sessions_that_are_stopped_end_well_whatever_their_log_has_lost(project: Path) -> None:
    (project / "bundle.md").write_text(BUNDLE.replace("tools:", "background_sessions: [{name: a}]\ntools:"))
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with told, open("/dev/full", "w") as full, tempfile.TemporaryDirectory() as folder:  # noqa: PTH123 - as above
        told.bind(f"{folder}/notify")
        told.settimeout(60)
        env = {**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"}
        process = forks.Popen(["up"], stdin=subprocess.DEVNULL, stdout=full, stderr=full, env=env)
        try:
            while b"READY=1" not in told.recv(4096):
                pass
            assert invoke(["stop", "--all"]) == exits.OK
            assert process.wait(60) == exits.OK
        finally:
            process.kill()


REPORT = """
import sys
import click

@click.command()
@click.argument("stream")
def report(stream):
    try:
        click.echo("a line", err=stream == "stderr")
    except OSError:
        sys.exit(9)
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_command_of_another_package_hears_that_its_output_has_no_room(
    stream: str, with_report: Callable[[str], dict[str, str]]
) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - the file must not be made
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: full}
        program = [sys.executable, "-m", "amplifier_foundation", "report", stream]
        ran = subprocess.run(program, **streams, env=with_report(REPORT), timeout=60, check=False)
    assert ran.returncode == 9


def test_the_commands_that_may_be_repeated_are_those_that_only_read() -> None:
    found: dict[str, set[bool]] = {}

    def look(command: click.Command, name: str) -> None:
        if isinstance(command, click.Group):
            for each in command.list_commands(click.Context(command)):
                look(cast("click.Command", command.get_command(click.Context(command), each)), each)
            return
        function: Any = command.callback
        names = set()
        while function is not None:
            names.add(function.__code__.co_qualname)
            function = getattr(function, "__wrapped__", None)
        found.setdefault(name, set()).add("run_reading.<locals>.run" in names)

    look(cli, "amplifier")
    assert found.keys() >= exits.REPEATABLE
    assert {name for name, reads in found.items() if True in reads} <= exits.REPEATABLE


def test_lines_go_on_when_there_is_room_again_and_each_is_whole(tmp_path: Path) -> None:
    script = """
import resource, sys
from amplifier_foundation.cli.running.showing import LinesView
view = LinesView()
room = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, room))  # a file that has no more room
for number in range(4):
    if number == 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        view({"type": "text", "number": number, "text": "x" * 15_000})
    except OSError as error:
        print(number, error.strerror, file=sys.stderr)
"""
    with (tmp_path / "lines").open("w+", encoding="utf-8") as out:
        ran = subprocess.run(
            [sys.executable, "-c", script], stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=True
        )
        out.seek(0)
        lines = [json.loads(line)["number"] for line in out]
    assert ran.stderr == "1 File too large\n2 File too large\n"
    assert lines == [0, 1, 3]
