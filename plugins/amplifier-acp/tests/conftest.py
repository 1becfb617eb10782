"""An editor for the real program: it sends and hears lines, and holds each of them against the published schema.

`schema.unstable.json` is that of the Agent Client Protocol, version 1, from the npm package `@agentclientprotocol/sdk`
2.4.0 (Apache License 2.0, https://github.com/agentclientprotocol/typescript-sdk).
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests import forks

PATIENCE = 60.0
"""Seconds for any answer; a loaded machine needs a part of them."""
SCHEMA = Path(__file__).with_name("schema.unstable.json")
CHAT = """---
bundle: {name: chat}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^write (?P<name>\\S+)'}
          say: "I write {name}."
          call: {tool: write_file, input: {file_path: "{name}", content: "hello\\n"}}
        - when: {tool: write_file, output: 'denied'}
          say: "Refused."
        - when: {tool: write_file}
          say: "Done."
      otherwise: {say: "You said: {prompt}"}
tools: [{module: tool-filesystem}]
permissions: {ask: [write_file]}
---
You chat.
"""
Message = dict[str, Any]


class Refused(Exception):
    """An answer is an error; `error` is that member of it."""

    def __init__(self, error: Message) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.error = error
        self.code = error["code"]


class Protocol:
    """The published schema. A member that it does not know is an error, too: those belong into `_meta`."""

    def __init__(self) -> None:
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        self._definitions = schema["$defs"]
        self._names: dict[tuple[str, str], str] = {}
        """The names of definitions by their method and their kind."""
        for name, definition in self._definitions.items():
            kind = next((each for each in ("Request", "Response", "Notification") if name.endswith(each)), None)
            if "x-method" in definition and kind is not None:
                self._names[definition["x-method"], kind] = name
        self._validators: dict[str, Draft202012Validator] = {}

    def check(self, message: Message, method: str | None = None) -> None:
        """Raise `AssertionError` for what is no message; `method` is that of the request, if this is an answer."""
        assert message["jsonrpc"] == "2.0", message
        if "method" in message:
            assert set(message) <= {"jsonrpc", "id", "method", "params"}, message
            kind = "Request" if "id" in message else "Notification"
            self._check_member(message, "params", message["method"], kind)
        elif "error" in message:
            assert set(message) == {"jsonrpc", "id", "error"}, message
            self._check_by("Error", message["error"])
        else:
            assert set(message) == {"jsonrpc", "id", "result"}, message
            assert method is not None, message
            self._check_member(message, "result", method, "Response")

    def _check_member(self, message: Message, member: str, method: str, kind: str) -> None:
        if method.startswith("_"):
            return
        self._check_by(self._names[method, kind], message[member])
        if method == "session/update":
            self._check_by("SessionUpdate", message[member]["update"])

    def _check_by(self, name: str, value: Any) -> None:
        validator = self._validators.get(name)
        if validator is None:
            schema = {"$ref": f"#/$defs/{name}", "$defs": self._definitions, "unevaluatedProperties": False}
            validator = self._validators[name] = Draft202012Validator(schema)
        problems = [f"{each.json_path}: {each.message}" for each in validator.iter_errors(value)]
        assert not problems, f"no {name}: {json.dumps(value)[:2000]}\n" + "\n".join(problems)[:2000]


class Editor:
    """One `amplifier acp`. `allow` chooses one of the offered options; by default the first."""

    def __init__(self, protocol: Protocol, folder: Path, environment: dict[str, str], *arguments: str) -> None:
        with (folder / "stderr.txt").open("wb") as complaints:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "amplifier_foundation", "acp", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=folder,
                env=environment,
            )
        self.folder = folder
        self.allow: Callable[[Message], str | None] = lambda asked: asked["options"][0]["optionId"]
        """Called with the parameters of a question; returns the id of an option, or None for no answer."""
        self.on_answer: Callable[[Message], None] | None = None
        """Called with each answer, in place of what is usual."""
        self.serve: dict[str, Callable[[Message], Message | None]] = {}
        """Called with the parameters of a request for what the editor offers; None is no answer, for now."""
        self.questions: list[Message] = []
        self.updates: list[tuple[str, Message]] = []
        self.answers: dict[Any, Message] = {}
        self.unasked: list[Message] = []
        """Answers to no request of this editor, such as those to lines that are no request."""
        self._protocol = protocol
        self._methods: dict[Any, str] = {}
        self._count = 0
        self._holds = False
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reads = threading.Event()
        self._reads.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # lines

    def write(self, *lines: bytes) -> None:
        """Write lines as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))
        if not self._holds:
            self.process.stdin.flush()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Write what the block sends at once."""
        assert self.process.stdin is not None
        self._holds = True
        yield
        self._holds = False
        self.process.stdin.flush()

    def send(self, **members: Any) -> None:
        """Write a message of the protocol."""
        message = {"jsonrpc": "2.0", **members}
        if "method" in members:
            self._protocol.check(message)
        self.write(json.dumps(message).encode())

    def pause(self) -> None:
        """Read nothing more until `resume`."""
        self._reads.clear()

    def resume(self) -> None:
        """Read again."""
        self._reads.set()

    def _read(self) -> None:
        assert self.process.stdout is not None
        line = b"more"
        while line:
            self._reads.wait()
            line = self.process.stdout.readline()
            self._lines.put(line)

    # messages

    def start(self, method: str, params: Message, *, valid: bool = True) -> int:
        """Send a request and return its id; one that is not `valid` is sent all the same."""
        self._count += 1
        self._methods[self._count] = method
        message = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        if valid:
            self._protocol.check(message)
        self.write(json.dumps(message).encode())
        return self._count

    def expect(self, number: Any, method: str) -> None:
        """Expect an answer to a request that was written by hand."""
        self._methods[number] = method

    def wait(self, number: Any) -> Any:
        """Return the result of a request. Raises `Refused`."""
        self.until(lambda: number in self.answers)
        answer = self.answers[number]
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def call(self, method: str, *, valid: bool = True, **params: Any) -> Any:
        """Send a request, and return its result. Raises `Refused`."""
        return self.wait(self.start(method, params, valid=valid))

    def refusal(self, method: str, *, valid: bool = True, **params: Any) -> Message:
        """Send a request that is to be refused, and return the error."""
        with pytest.raises(Refused) as caught:
            self.call(method, valid=valid, **params)
        return caught.value.error

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send(method=method, params=params)

    def until(self, is_done: Callable[[], bool]) -> None:
        """Hear messages until something is so."""
        while not is_done():
            self.hear()

    def hear(self) -> Message:
        """Hear one message: check it, keep it, and answer it if it is a question."""
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"nothing comes; stderr: {self.complaints()}") from None
        assert line, f"the program has ended: {self.process.wait()}; stderr: {self.complaints()}"
        return self._take(line)

    def _take(self, line: bytes) -> Message:
        message: Message = json.loads(line, parse_constant=pytest.fail)
        number, method = message.get("id"), message.get("method")
        if method is None and self.on_answer is not None:
            self.on_answer(message)
            return message
        if method is None:
            self._protocol.check(message, self._methods.get(number))
            assert number not in self.answers, f"answered twice: {message}"
            if number in self._methods:
                self.answers[number] = message
            else:
                self.unasked.append(message)
            return message
        self._protocol.check(message)
        if method == "session/update":
            self.updates.append((message["params"]["sessionId"], message["params"]["update"]))
        elif method == "session/request_permission":
            self.questions.append(message)
            if (chosen := self.allow(message["params"])) is not None:
                self.answer(message, {"outcome": "selected", "optionId": chosen})
        elif method in self.serve:
            self._serve(message, method)
        return message

    def _serve(self, message: Message, method: str) -> None:
        """Answer a request for the files or the terminals of the editor."""
        told: Message = {}
        try:
            if (result := self.serve[method](message["params"])) is None:
                return
            told["result"] = result
        except LookupError as error:
            told["error"] = {"code": -32603, "message": str(error)}
        answer = {"jsonrpc": "2.0", "id": message["id"], **told}
        self._protocol.check(answer, method)
        self.write(json.dumps(answer).encode())

    def answer(self, question: Message, outcome: Message) -> None:
        """Answer a question of the agent."""
        message = {"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}}
        self._protocol.check(message, question["method"])
        self.write(json.dumps(message).encode())

    def complaints(self) -> str:
        """Return what the program has written to stderr."""
        return (self.folder / "stderr.txt").read_text(encoding="utf-8", errors="replace")

    # what editors do

    def initialize(self, **capabilities: Any) -> Message:
        """Begin."""
        return self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)  # type: ignore[no-any-return]

    def new(self, folder: Path) -> str:
        """Begin a session in a folder and return its id."""
        return self.call("session/new", cwd=str(folder), mcpServers=[])["sessionId"]  # type: ignore[no-any-return]

    def prompt(self, session: str, text: str) -> Message:
        """Say something, and return the answer."""
        return self.wait(self.say(session, text))  # type: ignore[no-any-return]

    def say(self, session: str, text: str) -> int:
        """Say something, and return the id of the request."""
        return self.start("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def until_running(self, session: str) -> None:
        """Wait until a prompt of a session has begun: it is in the list, with a message."""
        while not any(
            each["sessionId"] == session and each["_meta"]["amplifier"]["status"] == "running"
            for each in self.call("session/list")["sessions"]
        ):
            pass

    def load(self, session: str, folder: Path) -> list[Message]:
        """Load a session, and return the updates that came before the answer."""
        known = len(self.updates)
        self.call("session/load", sessionId=session, cwd=str(folder), mcpServers=[])
        return [update for its_id, update in self.updates[known:] if its_id == session]

    def updates_of(self, session: str, kind: str) -> list[Message]:
        """Return the updates of a session of one kind."""
        return [each for its_id, each in self.updates if its_id == session and each["sessionUpdate"] == kind]

    def text_of(self, session: str) -> str:
        """Return all that the agent has said in a session so far."""
        chunks = self.updates_of(session, "agent_message_chunk")
        return "".join(each["content"]["text"] for each in chunks)

    def close(self) -> int:
        """Close stdin; hear what still comes, and return the exit code."""
        self.resume()
        assert self.process.stdin is not None
        self.process.stdin.close()
        while line := self._lines.get(timeout=PATIENCE):
            self._take(line)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End the program at once, if it still runs."""
        self.process.kill()
        self.process.wait()
        self.resume()
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # what it holds cannot be written any more
                pipe.close()  # type: ignore[union-attr]


class Editors:
    """Starts editors with a data folder of their own, and ends them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.protocol = Protocol()
        self.environment = {**os.environ, "AMPLIFIER_HOME": str(home), "AMPLIFIER_TRUST": "1"}
        self.environment["OLLAMA_HOST"] = "127.0.0.1:9"  # nobody listens there
        for name in ("AMPLIFIER_SESSION", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
            self.environment.pop(name, None)
        self._count = 0
        self._started: list[Editor] = []

    def start(self, *arguments: str, environment: dict[str, str] | None = None, **capabilities: Any) -> Editor:
        """Return an editor that has begun."""
        self._count += 1
        folder = self.home.parent / f"editor-{self._count}"
        folder.mkdir()
        editor = Editor(self.protocol, folder, environment or self.environment, *arguments)
        self._started.append(editor)
        editor.initialize(**capabilities)
        return editor

    def make(self, name: str, bundle: str, **files: str) -> Path:
        """Make a project for all tests of a file."""
        return make_project(self.home.parent / name, bundle, **files)

    def run(self, *arguments: str, folder: Path, stdin: str = "") -> str:
        """Run another command of the program, and return what it prints."""
        done = forks.run(arguments, cwd=folder, env=self.environment, input=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        """Kill what still runs."""
        for editor in self._started:
            editor.kill()


@pytest.fixture(scope="module")
def editors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editors]:
    """Editors with one data folder for all tests of a file."""
    editors = Editors(tmp_path_factory.mktemp("acp") / "home")
    yield editors
    editors.stop()


@pytest.fixture(scope="module")
def shared_editor(editors: Editors) -> Editor:
    """An editor for all tests of a file."""
    return editors.start()


@pytest.fixture
def editor(shared_editor: Editor) -> Editor:
    """The editor of the file; it allows once what it is asked, and has heard nothing yet."""
    shared_editor.allow = lambda asked: asked["options"][0]["optionId"]
    for heard in (shared_editor.updates, shared_editor.questions, shared_editor.unasked):
        heard.clear()
    return shared_editor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the bundle `CHAT`."""
    return make_project(tmp_path / "project", CHAT)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Make a project with a bundle, and further files by their names."""

    def make(bundle: str, name: str = "own", **files: str) -> Path:
        return make_project(tmp_path / name, bundle, **files)

    return make


def make_project(folder: Path, bundle: str, **files: str) -> Path:
    """Make a folder with `bundle.md`, and with each file: `own_py` is `own.py`."""
    folder.mkdir()
    (folder / "bundle.md").write_text(bundle, encoding="utf-8")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return folder
