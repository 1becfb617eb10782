"""The files and the terminals of an editor, as the tools of a session use them."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

Message = dict[str, Any]

FILES = """---
bundle: {name: files}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^read (?P<name>\\S+)'}
          call: {tool: read_file, input: {file_path: "{name}"}}
        - when: {user: '^write (?P<name>\\S+)'}
          call: {tool: write_file, input: {file_path: "{name}", content: "new\\n"}}
        - when: {user: '^edit (?P<name>\\S+)'}
          call: {tool: edit_file, input: {file_path: "{name}", old_string: "shown", new_string: "changed"}}
        - when: {user: '^run long (?P<command>.*)'}
          call: {tool: bash, input: {command: ": LONG; {command}"}}
        - when: {user: '^run (?P<command>.*)'}
          call: {tool: bash, input: {command: "{command}"}}
        - when: {tool: bash, output: '(?s)(?P<all>.*)'}
          say: "It came to: {all}"
        - when: {tool: read_file, output: '(?s)(?P<all>.*)'}
          say: "It says: {all}"
        - when: {tool: write_file, output: '(?s)(?P<all>.*)'}
          say: "It came to: {all}"
        - when: {tool: edit_file, output: '(?s)(?P<all>.*)'}
          say: "It came to: {all}"
tools: [{module: tool-filesystem}, {module: tool-bash}]
---
You use tools.
"""


class Buffers:
    """The files of an editor, with text that is not saved."""

    def __init__(self, editor: Any, texts: dict[str, str]) -> None:
        self.texts = texts
        self.asked: list[str] = []
        editor.serve["fs/read_text_file"] = self.read
        editor.serve["fs/write_text_file"] = self.write

    def read(self, params: Message) -> Message:
        self.asked.append(params["path"])
        return {"content": self.texts[params["path"]]}

    def write(self, params: Message) -> Message:
        self.texts[params["path"]] = params["content"]
        return {}


class Terminals:
    """The terminals of an editor: real processes."""

    def __init__(self, editor: Any) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.output: dict[str, str] = {}
        self.released: list[str] = []
        for name in ("create", "wait_for_exit", "kill", "release"):
            editor.serve[f"terminal/{name}"] = getattr(self, name)
        editor.serve["terminal/output"] = lambda params: {
            "output": self.output.get(params["terminalId"], ""),
            "truncated": False,
        }

    def create(self, params: Message) -> Message:
        name = f"terminal-{len(self.running)}"
        self.running[name] = subprocess.Popen(
            [params["command"], *params["args"]],
            cwd=params["cwd"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return {"terminalId": name}

    def wait_for_exit(self, params: Message) -> Message:
        name = params["terminalId"]
        self.output[name] = self.running[name].communicate()[0].decode()
        return {"exitCode": self.running[name].returncode}

    def kill(self, params: Message) -> Message:
        self.running[params["terminalId"]].kill()
        return {}

    def release(self, params: Message) -> Message:
        self.released.append(params["terminalId"])
        return {}


def open_with_terminals(editors: Any) -> tuple[Any, Terminals]:
    """Start an editor with terminals, for commands in the sandbox."""
    require("bwrap")
    editor = editors.start(terminal=True)
    return editor, Terminals(editor)


def cancel_command(editor: Any, project: Path, held: list[Message]) -> None:
    """Run a long command, and cancel it when the editor holds a request for it."""
    session = editor.new(project)
    said = editor.say(session, "run sleep 1000")
    editor.until(lambda: bool(held))
    editor.notify("session/cancel", sessionId=session)
    assert editor.wait(said)["stopReason"] == "cancelled"


@pytest.fixture
def project(make: Callable[..., Path]) -> Path:
    """A project whose agent has files and commands."""
    return make(FILES.replace("LONG", "ж" * 50_000))


@pytest.fixture
def filing(editors: Any) -> Any:
    """An editor that offers its files."""
    return editors.start(fs={"readTextFile": True, "writeTextFile": True})


def test_a_file_is_read_as_the_editor_shows_it(filing: Any, project: Path) -> None:
    (project / "a.txt").write_text("saved\n")
    buffers = Buffers(filing, {str(project / "a.txt"): "shown\n", str(project / "new.txt"): "not saved yet\n"})
    session = filing.new(project)
    filing.prompt(session, "read a.txt")
    filing.prompt(session, "read new.txt")
    assert "shown" in filing.text_of(session)
    assert "not saved yet" in filing.text_of(session)
    assert buffers.asked == [str(project / "a.txt"), str(project / "new.txt")]


def test_a_file_is_written_and_edited_by_the_editor(filing: Any, project: Path) -> None:
    buffers = Buffers(filing, {str(project / "a.txt"): "as shown\n"})
    (project / "a.txt").write_text("as saved\n")
    session = filing.new(project)
    filing.prompt(session, "edit a.txt")
    filing.prompt(session, "write deep/b.txt")
    assert buffers.texts == {str(project / "a.txt"): "as changed\n", str(project / "deep/b.txt"): "new\n"}
    assert (project / "a.txt").read_text() == "as saved\n"  # the editor saves it


def test_the_editor_is_asked_for_nothing_outside_of_the_folder_and_for_no_secret(filing: Any, project: Path) -> None:
    (project / ".env").write_text("KEY=1\n")
    (project / "link").symlink_to("/etc/hostname")
    buffers = Buffers(filing, {})
    session = filing.new(project)
    for path in ("../a.txt", "/etc/passwd", "link", ".env"):
        filing.prompt(session, f"read {path}")
    assert buffers.asked == []


def test_what_the_editor_refuses_is_an_error_of_the_call(filing: Any, project: Path) -> None:
    def refuse(params: Message) -> Message:
        raise KeyError("the file is too large")

    (project / "a.txt").write_text("saved\n")
    filing.serve["fs/read_text_file"] = refuse
    session = filing.new(project)
    filing.prompt(session, "read a.txt")
    [update] = filing.updates_of(session, "tool_call_update")
    assert update["status"] == "failed"
    assert "the editor: 'the file is too large'" in str(update["content"])


def test_a_command_runs_in_a_terminal_of_the_editor_and_in_the_sandbox(editors: Any, project: Path) -> None:
    editor, terminals = open_with_terminals(editors)
    session = editor.new(project)
    editor.prompt(session, "run echo inside >made; echo outside >../made; id -un; exit 7")
    content = [update["content"] for update in editor.updates_of(session, "tool_call_update") if "content" in update]
    assert {"type": "terminal", "terminalId": "terminal-0"} in content[0]
    assert content[-1] == [{"type": "terminal", "terminalId": "terminal-0"}]
    assert (project / "made").read_text() == "inside\n"
    assert not (project.parent / "made").exists()
    assert '"exit_code": 7' in editor.text_of(session)
    assert terminals.released == ["terminal-0"]


def test_a_long_command_runs_in_a_terminal_and_half_a_surrogate_pair_is_no_failure(editors: Any, project: Path) -> None:
    editor, terminals = open_with_terminals(editors)
    editor.serve["terminal/output"] = lambda params: {"output": "half: \ud83d", "truncated": False}
    session = editor.new(project)
    editor.prompt(session, "run long exit 7")

    assert terminals.running["terminal-0"].returncode == 7
    assert "half: ?" in editor.text_of(session)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_cancelled_command_ends_in_its_terminal(editors: Any, project: Path, refuses: bool) -> None:
    editor, terminals = open_with_terminals(editors)
    waiting: list[Any] = []

    def refuse(params: Message) -> Message:
        raise KeyError("it cannot be killed")

    def hold(params: Message) -> None:
        waiting.append(params)

    editor.serve["terminal/wait_for_exit"] = hold
    if refuses:
        editor.serve["terminal/kill"] = refuse
    cancel_command(editor, project, waiting)
    editor.until(lambda: terminals.released == ["terminal-0"])
    terminals.running["terminal-0"].communicate(timeout=120)
    assert terminals.running["terminal-0"].returncode < 0


def test_a_terminal_that_comes_after_the_cancellation_is_released(editors: Any, project: Path) -> None:
    editor, terminals = open_with_terminals(editors)
    asked: list[Message] = []

    def hold(params: Message) -> None:
        asked.append(params)

    def answer_all_the_same(params: Message) -> None:
        result = terminals.create({**asked[0], "command": "sleep", "args": ["1000"]})  # a kill ends it whole
        editor.write(json.dumps({"jsonrpc": "2.0", "id": params["requestId"], "result": result}).encode())

    editor.serve["terminal/create"] = hold
    editor.serve["$/cancel_request"] = answer_all_the_same
    cancel_command(editor, project, asked)
    editor.until(lambda: terminals.released == ["terminal-0"])
    terminals.running["terminal-0"].kill()
    terminals.running["terminal-0"].communicate(timeout=120)
