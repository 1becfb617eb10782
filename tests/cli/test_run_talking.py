"""`amplifier run` at a terminal: a conversation."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke

BUNDLE = """---
bundle: {name: talk}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^wait for (?P<what>\\w+)'}
          call: {tool: wait, input: {what: "{what}"}}
        - when: {user: '^write'}
          call: {tool: write_file, input: {file_path: hello.txt, content: hello}}
        - when: {user: '^have it written'}
          call: {tool: delegate, input: {agent: reviewer, instruction: write}}
        - when: {tool: delegate}
          say: "reported: {response}"
        - when: {tool: wait, output: waited}
          say: "waited for {what}"
        - when: {tool: wait}
          say: "cut off"
        - when: {tool: write_file}
          say: "{result}"
      otherwise: {say: "You said: {prompt}"}
tools:
  - {module: tool-filesystem}
  - {module: wait, source: ./modules/wait.py}
  - {module: tool-delegate}
hooks:
  - {module: ask, source: ./modules/ask.py}
agents:
  reviewer: {description: Reads files., instruction: Read.}
---
Answer.
"""


@pytest.fixture(autouse=True)
def bundle(project: Path, modules: Path, home: Path) -> None:
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert invoke([*arguments, "--json"]) == exits.OK
    return json.loads(capsys.readouterr().out)["data"]


def test_a_conversation_is_one_session_with_commands_and_forks(
    terminals: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    person = terminals("run")
    found = re.search(r"talk: session (talk-\w+)\. /help", person.prompted())
    assert found is not None
    first = found[1]
    assert "this session has no messages yet" in person.say("/tree")
    assert "You said: hello\n" in person.say("hello")
    person.type("one \\\n")
    person.until(r"\n\. \Z")
    assert "You said: one \ntwo\n" in person.say("two")
    person.type('"""\n')
    person.until(r"\n\. \Z")
    person.type("three\n")
    person.until(r"\n\. \Z")
    assert "You said: three\nfour\n" in person.say('four"""')
    assert "You said: /etc/passwd\n" in person.say("/etc/passwd")

    helped = person.say("/help")
    assert all(f"{name} " in helped for name in ("/fork", "/tree", "/agents", "/cost", "/resume", "/rename", "/quit"))
    assert helped == person.say("/").replace("/\n", "/help\n", 1)
    assert "no command /tres; did you mean /tree?" in person.say("/tres")
    assert "/tree takes no argument" in person.say("/tree now")
    assert f"{first}  completed  4 turns, 8 messages, " in person.say("/tree")
    assert "reviewer  Reads files." in person.say("/agents")
    assert re.search(r"4 requests of .*\n\d+ tokens in, \d+ out; \$0\n", person.say("/cost"))
    assert f"{first}: a better name" in person.say("/rename a better name")
    assert "the last turn was not interrupted" in person.say("/continue")
    assert "Turn 9 out of range" in person.say("/fork 9")

    forked = person.say("/fork 1")
    found = re.search(rf"(\S+) shares 2 messages of {first}\n", forked)
    assert found is not None
    fork = found[1]
    assert f"session {fork}, 1 turn so far" in forked
    assert "You said: more\n" in person.say("more")
    assert f"{fork}  completed  2 turns, 4 messages, " in person.say("/tree")
    assert first in person.say("/resume")
    assert "amplifier: no session 'none'" in person.say("/resume none")
    assert f"a better name: session {first}, 4 turns so far" in person.say(f"/resume {first[:12]}")
    person.type("/quit\n")
    person.until(rf"{first}: 4 turns\. amplifier run --resume {first}\n")
    assert person.ended() == exits.OK

    history = home / "prompts"
    assert history.stat().st_mode & 0o777 == 0o600
    assert "/etc/passwd" in history.read_text(encoding="utf-8").splitlines()
    [root] = data(capsys, "session", "tree")
    assert (root["session_id"], root["name"], root["status"]) == (first, "a better name", "completed")
    assert (root["usage"]["requests"], root["usage"]["cost_usd"]) == (4, "0")
    [below] = root["children"]
    assert (below["fork_of"], below["fork_at"], below["message_count"]) == (first, 2, 4)
    assert below["usage"]["requests"] == 1
    assert below["duration"] > 0


def test_pasted_lines_are_one_prompt(tmp_path: Path) -> None:
    side, other = pty.openpty()
    read = "from amplifier_foundation.cli.running.lines import LineEditor; from pathlib import Path; import sys"
    program = f"{read}; print(repr(LineEditor(Path(sys.argv[1])).read()))"
    command = [sys.executable, "-c", program, str(tmp_path / "history")]
    streams = {"stdin": other, "stdout": other, "stderr": other}
    with subprocess.Popen(command, **streams, env={**os.environ, "TERM": "xterm"}) as process:
        shown = ""
        while not shown.endswith("> "):
            shown += os.read(side, 1000).decode()
        assert "\x1b[?2004h" in shown, "the terminal is not asked to mark what is pasted"
        os.write(side, b"\x1b[200~first\rsecond\n third\x1b[201~\n")
        while not shown.endswith("'\r\n"):
            shown += os.read(side, 1000).decode()
        assert process.wait(60) == 0
    os.close(side)
    os.close(other)
    assert shown.endswith(r"'first\nsecond\n third'" + "\r\n")


@pytest.mark.parametrize("word", ["exit", "quit", ":q"])
def test_a_word_that_ends_other_programs_ends_a_conversation(terminals: Any, project: Path, word: str) -> None:
    person = terminals("run")
    person.prompted()
    assert f"You said: {word} now?\n" in person.say(f"{word} now?")
    person.type('"""\n')
    person.until(r"\. \Z")
    person.type(f"{word}\n")
    person.until(r"\. \Z")
    assert f"You said: {word}\n" in person.say('"""')
    person.type("wait for godot\n")
    person.until("begun godot\n")
    person.type(f"{word}\n")
    person.until(r"» /quit \(runs after this turn\)")
    (project / "go").touch()
    person.until(r"talk-\w+: 3 turns\.")
    assert person.ended() == exits.OK


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_lines_that_come_with_a_prompt_are_the_next_one(terminals: Any, project: Path, term: str) -> None:
    person = terminals("run", term=term)
    person.until(r"> \Z")
    person.type("wait for godot\rtwo\r\nthree\rfour")
    person.until(r"» two.*three \(runs after this turn\)")
    (project / "go").touch()
    person.until(r"You said: two\s+three\s")
    person.until(r"> .*four\Z")
    person.type("\r")
    person.until("You said: four")


def type_lines(history: Path, *lines: str, remembered: int = 1_000) -> None:
    """Type lines at a terminal, each when it is asked for."""
    read = "from amplifier_foundation.cli.running.lines import LineEditor; from pathlib import Path; import sys"
    program = f"{read}; editor = LineEditor(Path(sys.argv[1]), (), {remembered}); [editor.read() for _ in sys.argv[2:]]"
    side, other = pty.openpty()
    streams = {"stdin": other, "stdout": other, "stderr": other}
    command = [sys.executable, "-c", program, str(history), *lines]
    with subprocess.Popen(command, **streams, env={**os.environ, "TERM": "dumb"}) as process:
        for line in lines:
            shown = ""
            while not shown.endswith("> "):
                shown += os.read(side, 1000).decode()
            os.write(side, f"{line}\n".encode())
        assert process.wait(60) == 0
    os.close(side)
    os.close(other)


def test_what_is_typed_is_kept_without_secrets_or_not_at_all(tmp_path: Path) -> None:
    history = tmp_path / "prompts"
    type_lines(history, "first", "my key is ghp_mHFwUbbYrEqmSM9wCZ7Uw9xfogoEmvnEN5N1 ok")
    type_lines(history, "password: Hunter2secretpw99", "last")
    first, key, password, last = history.read_text().splitlines()
    assert (first, key) == ("first", "my key is [REDACTED] ok")
    assert password.startswith("password: [REDACTED]")
    assert last == "last"
    assert history.stat().st_mode & 0o777 == 0o600
    type_lines(history, "second", "third", remembered=2)
    type_lines(history, remembered=2)
    assert history.read_text().splitlines() == ["second", "third"]
    type_lines(history, "nothing", remembered=0)
    assert not history.exists()


def test_a_child_that_asks_is_named_once(terminals: Any, project: Path) -> None:
    person = terminals("run", "--name", "held")
    person.prompted()
    person.type("have it written\n")
    person.until(r"\n\? reviewer \(\w+-\w+\) asks: Write hello\.txt\?\n(.*\n)*\+hello\n  \[1\] Allow")
    person.type("1\n")
    assert "reported: " in person.prompted()
    assert (project / "hello.txt").read_text(encoding="utf-8") == "hello"


def test_ctrl_c_stops_a_turn_after_its_step_and_then_at_once(
    terminals: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    person = terminals("run", "--name", "held")
    person.prompted()
    person.type("wait for godot\n")
    person.until("→ wait godot\nbegun godot\n")
    person.type("\x03")
    person.until("stopping after this step")
    (project / "go").touch()
    assert "amplifier: stopped" in person.prompted()
    assert (project / "ended-godot").exists()
    assert "waited for godot" in person.say("/continue")
    (project / "go").unlink()

    person.type("wait for nobody\n")
    person.until("→ wait nobody\nbegun nobody\n")
    person.type("\x03")
    person.until("stopping after this step")
    person.type("\x03")
    person.until("stopping now: wait is cut off")
    assert "amplifier: stopped" in person.prompted()
    assert not (project / "ended-nobody").exists()
    assert "cut off" in person.say("/continue")

    person.type("write\n")
    person.until(r"held \(held-\w+\) asks: Write hello\.txt\?\n(.*\n)*\+hello\n")  # what the call would change
    person.until(r"^  \[1\] Allow  \[2\] Deny   \(Enter: Deny, 300 s\) ")
    person.type("maybe\n")
    person.until(r"'maybe' names none of these, or several:  \[1\] Allow  \[2\] Deny\? ")
    person.type("n\n")
    assert "Denied by hook" in person.prompted()
    assert not (project / "hello.txt").exists()
    person.type("write\n")
    person.until("Enter: Deny")
    person.type("\x03")
    assert "no answer: denied" in person.prompted()
    person.type("write\n")
    person.until("Enter: Deny")
    person.type("1\n")
    person.prompted()
    assert (project / "hello.txt").read_text(encoding="utf-8") == "hello"

    person.type("half a line\x03")
    person.until("Ctrl-C again quits")
    person.prompted()
    assert "You said: whole" in person.say("whole")
    person.type("\x03")
    person.prompted()
    person.type("\x03")
    person.until(r"held-\w+: 6 turns")
    assert person.ended() == exits.OK
    [record] = data(capsys, "session", "list")
    assert (record["name"], record["status"], record["turn_count"]) == ("held", "completed", 6)


def test_what_a_suspended_program_waits_for_is_shown_again_when_it_goes_on(terminals: Any, project: Path) -> None:
    person = terminals("run")
    person.prompted()
    person.type("half a l")
    person.until("half a l")
    person.signal(signal.SIGCONT)  # as `fg` of a shell sends it
    person.until("> half a l")
    person.type("ine\n")
    assert "You said: half a line\n" in person.prompted()
    person.type("one \\\ntw")
    person.until(r"\. tw")
    person.signal(signal.SIGCONT)
    person.until(r"\. tw")
    person.type("o\n")
    assert "You said: one \ntwo\n" in person.prompted()
    person.type("write\n")
    person.until("Enter: Deny, 300 s")
    person.type("4\n")
    person.until(r"'4' names none of these")
    person.signal(signal.SIGCONT)
    person.until(r"asks: Write hello\.txt\?\n(.*\n)*\+hello\n  \[1\] Allow  \[2\] Deny   \(Enter: Deny, 300 s\) ")
    person.type("1\n")
    person.prompted()
    assert (project / "hello.txt").read_text(encoding="utf-8") == "hello"


def test_signals_that_come_together_leave_the_prompt_open(terminals: Any) -> None:
    person = terminals("run", term="xterm")
    person.until(r"> \Z")
    for round in range(5):
        for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGINT):  # both are there when the program goes on
            person.signal(number)
        person.until(r"again quits\)\n(.*\n)*.*> ")
        person.type(f"round {round}")
        person.until(f"round {round}")
        person.type("\r")
        person.until(f"You said: round {round}")
        person.until(r"> \Z")


def test_a_suspended_turn_shows_its_question_again(terminals: Any, project: Path) -> None:
    person = terminals("run", "write")
    person.until("Enter: Deny, 300 s")
    person.signal(signal.SIGCONT)
    person.until(r"asks: Write hello\.txt\?\n(.*\n)*\+hello\n  \[1\] Allow")
    person.type("1\n")
    assert person.ended() == exits.OK
    assert (project / "hello.txt").read_text(encoding="utf-8") == "hello"


def test_a_dumb_terminal_gets_no_styles(terminals: Any) -> None:
    person = terminals("run", colour=True)
    person.prompted()
    assert "\x1b" not in re.sub(r"\x1b\[\?2004[hl]", "", person.say("hello"))


def test_a_line_is_kept_whose_end_comes_together_with_a_suspension(terminals: Any) -> None:
    person = terminals("run", term="xterm")
    person.until(r"> \Z")
    for round in range(20):
        person.type(f"round {round}")
        person.until(f"round {round}")
        person.type("\r")
        person.until("\n")
        person.signal(signal.SIGCONT)
        person.until(f"You said: round {round}")
        person.until(r"> \Z")
