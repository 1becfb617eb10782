"""Bundles and background sessions as tools of other agents: the official client calls them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from amplifier_core import load_plugins
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import load_bundle, open_inbox
from amplifier_foundation.background.up import run_background
from amplifier_foundation.bundle.model import Bundle
from amplifier_foundation.cli import exits
from amplifier_tool_mcp.serving.calls import Calls
from amplifier_tool_mcp.serving.offers import NameTaken, make_offers
from amplifier_tool_mcp.serving.server import make_server

pytestmark = pytest.mark.slow

PATIENCE = 60.0
"""Seconds for anything; a loaded machine needs a part of them."""
HELPER = """---
bundle: {name: helper, description: Answers about this folder.}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^read (?P<name>\\S+)'}
          call: {tool: read_file, input: {file_path: "{name}"}}
        - when: {user: '^write (?P<name>\\S+)'}
          call: {tool: write_file, input: {file_path: "{name}", content: x}}
        - when: {user: '^wait'}
          call: {tool: wait, input: {}}
        - when: {user: 'fail'}
          call: {tool: nothing_of_this_name, input: {}}
        - when: {tool: read_file, output: 'hello'}
          say: "It says hello."
        - when: {tool: write_file, output: 'denied'}
          say: "I may not."
        - when: {tool: wait}
          say: "Waited."
      otherwise: {say: "You said: {prompt}"}
tools: [{module: tool-filesystem}, {module: tool-wait, source: ./wait.py}]
permissions: {ask: [write_file]}
background_sessions:
  - {name: notes, triggers: [{type: manual}], instruction: Take a note.}
---
You help.
"""
WAIT = """
import os, threading, time
from amplifier_core import ToolResult
GATE = threading.Event()
class Wait:
    name, description, input_schema = "wait", "Block until the gate opens.", {}
    async def execute(self, input):
        print("this tool prints")
        open("waiting", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
        return ToolResult(output="done")
async def mount(coordinator, config=None):
    await coordinator.mount("tools", Wait(), name="wait")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one, with a data folder of its own."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def plugins() -> Plugins:
    return load_plugins(environ={})


@pytest.fixture
async def store(tmp_path: Path, plugins: Plugins) -> AsyncIterator[DurableStore]:
    """A store on disk."""
    opened = open_inbox(plugins, path=tmp_path / "store" / "amplifier.db")
    yield opened
    await opened.close()


@pytest.fixture
async def helper(project: Path) -> Bundle:
    """A bundle with an instruction and a background session."""
    project.joinpath("bundle.md").write_text(HELPER)
    project.joinpath("wait.py").write_text(WAIT)
    project.joinpath("notes.txt").write_text("hello\n")
    return await load_bundle(str(project / "bundle.md"))


@pytest.fixture
def calling(store: DurableStore, plugins: Plugins, project: Path, helper: Bundle) -> Any:
    """Return a client that has connected to a server with the bundle."""

    @asynccontextmanager
    async def connect(*bundles: Bundle) -> AsyncIterator[Client]:
        offers = make_offers(bundles or (helper,))
        with Calls(offers, store, plugins, project, print) as calls:
            async with Client(make_server(offers, calls)) as client:
                yield client

    return connect


async def test_each_bundle_and_each_background_session_is_a_tool(calling: Any) -> None:
    async with calling() as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
    assert list(tools) == ["ask_helper", "wake_notes", "delivery"]
    assert "Answers about this folder." in (tools["ask_helper"].description or "")
    assert tools["ask_helper"].input_schema["required"] == ["prompt"]


async def test_half_a_character_in_an_answer_is_lost_alone(calling: Any) -> None:
    async with calling() as client:
        result = await client.call_tool("ask_helper", {"prompt": "a\ud83d b"})
    assert (result.content[0].text, result.structured_content["answer"]) == ("You said: a? b", "You said: a? b")


def test_names_are_those_that_models_take_and_none_stands_for_two() -> None:
    named = Bundle(name="a bundle: of" + "x" * 80, instruction="You help.")
    [name] = make_offers([named])
    assert re.fullmatch(r"ask_a_bundle__of[x]+", name) and len(name) == 64
    with pytest.raises(NameTaken, match="bundle 'a b' and bundle 'a_b' would both be the tool ask_a_b"):
        make_offers([Bundle(name="a b", instruction="1"), Bundle(name="a_b", instruction="2")])


async def test_a_bundle_without_an_instruction_offers_its_background_sessions_alone(helper: Bundle) -> None:
    helper.instruction = ""
    assert list(make_offers([helper])) == ["wake_notes", "delivery"]


async def test_an_answer_comes_with_its_session_and_the_calls_of_its_tools_as_progress(
    calling: Any, store: DurableStore
) -> None:
    seen: list[tuple[float, str | None]] = []
    heard = asyncio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))
        heard.set()

    async with calling() as client:
        result = await client.call_tool("ask_helper", {"prompt": "read notes.txt"}, progress_callback=hear)
        await asyncio.wait_for(heard.wait(), PATIENCE)
    assert (result.is_error, result.content[0].text) == (False, "It says hello.")
    assert seen == [(1, "read_file")]
    record = await store.get(result.structured_content["session_id"])
    assert (record.bundle, record.status, record.turn_count) == ("helper", "completed", 1)


async def test_a_caller_goes_on_with_a_session_or_in_a_fork_of_it(calling: Any, store: DurableStore) -> None:
    async with calling() as client:
        first = (await client.call_tool("ask_helper", {"prompt": "one"})).structured_content["session_id"]
        second = (await client.call_tool("ask_helper", {"prompt": "two", "session": first})).structured_content
        third = {"prompt": "three", "session": first, "fork": True}
        forked = (await client.call_tool("ask_helper", third)).structured_content
    assert (second["session_id"], second["turn_count"]) == (first, 2)
    assert forked["session_id"] != first and forked["turn_count"] == 3
    assert (await store.get(forked["session_id"])).fork_of == first
    assert (await store.get(first)).turn_count == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "'prompt' is a required property"),
        ({"prompt": ""}, "should be non-empty"),
        ({"prompt": "x", "sesion": "y"}, "'sesion' was unexpected"),
        ({"prompt": "x", "session": "../../etc"}, "there is no session '../../etc' of bundle 'helper' here"),
        ({"prompt": "x", "session": "nobody-1"}, "there is no session 'nobody-1'"),
        ({"prompt": "x", "fork": True}, "fork: name the session to fork"),
    ],
)
async def test_a_wrong_call_is_answered_with_what_is_wrong(
    calling: Any, arguments: dict[str, Any], problem: str
) -> None:
    async with calling() as client:
        result = await client.call_tool("ask_helper", arguments)
    assert result.is_error
    assert problem in result.content[0].text


async def test_sessions_of_other_bundles_and_folders_are_not_offered(
    calling: Any, store: DurableStore, helper: Bundle
) -> None:
    other = Bundle(name="other", instruction="You help.", providers=helper.providers)
    async with calling(helper, other) as client:
        theirs = (await client.call_tool("ask_other", {"prompt": "a secret"})).structured_content["session_id"]
        result = await client.call_tool("ask_helper", {"prompt": "tell me", "session": theirs})
        assert result.is_error and "there is no session" in result.content[0].text
        mine = (await client.call_tool("ask_helper", {"prompt": "one"})).structured_content["session_id"]
        await store.update(mine, project="/somewhere/else")
        result = await client.call_tool("ask_helper", {"prompt": "two", "session": mine})
        assert result.is_error and "there is no session" in result.content[0].text


async def test_what_needs_an_approval_is_denied_and_named(calling: Any, project: Path) -> None:
    async with calling() as client:
        result = await client.call_tool("ask_helper", {"prompt": "write new.txt"})
    assert result.content[0].text == "I may not."
    [question] = result.structured_content["unanswered"]
    assert question.startswith('write_file(file_path="new.txt"')
    assert not project.joinpath("new.txt").exists()


async def test_a_tool_that_blocks_holds_up_its_own_call_alone(calling: Any, project: Path) -> None:
    async with calling() as client, asyncio.TaskGroup() as group:
        waiting = group.create_task(client.call_tool("ask_helper", {"prompt": "wait"}))
        while not project.joinpath("waiting").exists():
            await asyncio.sleep(0.01)
        other = await asyncio.wait_for(client.call_tool("ask_helper", {"prompt": "hello"}), PATIENCE)
        assert other.content[0].text == "You said: hello"
        assert not waiting.done()
        project.joinpath("go").touch()
    assert waiting.result().content[0].text == "Waited."


async def test_a_cancelled_call_interrupts_its_turn(calling: Any, store: DurableStore, project: Path) -> None:
    async with calling() as client:
        asking = asyncio.ensure_future(client.call_tool("ask_helper", {"prompt": "wait"}))
        while not project.joinpath("waiting").exists():
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait({asking})
        project.joinpath("go").touch()
        async with asyncio.timeout(PATIENCE):
            while (await store.sessions())[0].status == "running":
                await asyncio.sleep(0.01)
    assert (await store.sessions())[0].status == "interrupted"


async def test_a_background_session_is_woken_and_its_answer_waited_for(
    calling: Any, store: DurableStore, plugins: Plugins, helper: Bundle, project: Path
) -> None:
    async with calling() as client:
        accepted = await client.call_tool("wake_notes", {"data": {"path": "a.py"}})
        assert "it waits for: amplifier up" in accepted.content[0].text
        delivery = accepted.structured_content["delivery_id"]
        looked = await client.call_tool("delivery", {"delivery_id": delivery})
        assert (looked.is_error, looked.structured_content["state"]) == (False, "pending")
        async with run_background([helper], store, plugins, working_dir=project):
            done = await client.call_tool("delivery", {"delivery_id": delivery, "wait": PATIENCE})
    assert done.structured_content["state"] == "done"
    assert done.content[0].text.startswith("You said: Take a note.") and "a.py" in done.content[0].text
    assert (await store.get(done.structured_content["session_id"])).status == "completed"


@pytest.mark.parametrize("delivery", ["", "no-such", "%", "a" * 500])
async def test_a_delivery_that_is_none_of_ours_is_unknown(calling: Any, delivery: str) -> None:
    async with calling() as client:
        result = await client.call_tool("delivery", {"delivery_id": delivery})
    assert result.is_error and "there is no delivery" in result.content[0].text


async def test_the_delivery_of_another_background_session_is_unknown(
    calling: Any, store: DurableStore, helper: Bundle
) -> None:
    async with calling() as client:
        known = (await client.call_tool("wake_notes", {})).structured_content["delivery_id"]
    helper.background_sessions[0] = helper.background_sessions[0].model_copy(update={"name": "other"})
    async with calling() as client:
        result = await client.call_tool("delivery", {"delivery_id": known})
    assert result.is_error and "there is no delivery" in result.content[0].text


# the real program


@pytest.fixture
def served(helper: Bundle) -> dict[str, str]:
    """The environment of the program."""
    return {**os.environ}


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "amplifier_foundation", "mcp", "serve", *arguments]


async def test_the_program_serves_a_client_at_its_stdin_whatever_a_tool_prints(
    served: dict[str, str], project: Path
) -> None:
    project.joinpath("go").touch()
    server = StdioServerParameters(command=program()[0], args=program()[1:], env=served, cwd=project)
    async with asyncio.timeout(PATIENCE), Client(stdio_client(server)) as client:
        assert "ask_helper" in [each.name for each in (await client.list_tools()).tools]
        result = await client.call_tool("ask_helper", {"prompt": "wait"})
        assert result.content[0].text == "Waited."


async def test_a_cancelled_call_ends_no_other_one_of_the_program(served: dict[str, str], project: Path) -> None:
    server = StdioServerParameters(command=program()[0], args=program()[1:], env=served, cwd=project)
    async with asyncio.timeout(PATIENCE), Client(stdio_client(server)) as client, asyncio.TaskGroup() as group:
        calls = []
        for _ in range(2):
            calls.append(group.create_task(client.call_tool("ask_helper", {"prompt": "wait"})))
            while not project.joinpath("waiting").exists():
                await asyncio.sleep(0.01)
            project.joinpath("waiting").unlink()
        calls[0].cancel()
        await asyncio.wait({calls[0]})
        project.joinpath("go").touch()
        assert (await calls[1]).content[0].text == "Waited."
        assert (await client.call_tool("ask_helper", {"prompt": "hello"})).content[0].text == "You said: hello"


ENDS = [(signal.SIGTERM, exits.TERMINATED), (signal.SIGHUP, exits.TERMINATED), (signal.SIGINT, exits.INTERRUPTED)]


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_signal_ends_the_program(served: dict[str, str], number: signal.Signals, code: int) -> None:
    with listening(served) as (process, _, _):
        process.send_signal(number)
        assert process.wait(PATIENCE) == code


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_signal_ends_the_program_also_while_it_waits_for_a_line(
    served: dict[str, str], number: signal.Signals, code: int
) -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    person, terminal = pty.openpty()
    attributes = termios.tcgetattr(terminal)
    attributes[3] &= ~termios.ICANON  # a line may be longer than a terminal takes
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    process = subprocess.Popen(program(), env=served, stdin=terminal, stdout=subprocess.PIPE, text=True)
    os.close(terminal)
    try:
        os.write(person, f"{json.dumps(begin)}\n".encode())
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(number)
        assert process.wait(PATIENCE) == code
    finally:
        process.kill()
        process.communicate()
        os.close(person)


def test_the_end_of_its_stdin_ends_the_program(served: dict[str, str]) -> None:
    done = subprocess.run(
        program(), input="", env=served, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_what_was_asked_before_the_end_of_its_stdin_is_answered(served: dict[str, str]) -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    ask = {"name": "ask_helper", "arguments": {"prompt": "hello"}}
    said: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        *({"id": number, "method": "tools/call", "params": ask} for number in range(1, 20)),
    ]
    lines = "".join(f"{json.dumps({'jsonrpc': '2.0', **each})}\n" for each in said)
    done = subprocess.run(
        program(), input=lines, env=served, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, sorted(each["id"] for each in answers)) == (0, [*range(20)])
    assert all(each["result"]["content"][0]["text"] == "You said: hello" for each in answers if each["id"])


LINES = [
    ("garbage", (None, -32700)),
    ("{bad", (None, -32700)),
    ("", None),
    ("[]", (None, -32600)),
    ("5", (None, -32600)),
    ('{"jsonrpc": "2.0", "id": 9, "result": null}', None),
    ('{"jsonrpc": "2.0", "id": 9, "error": "broken"}', None),
    ('{"jsonrpc": "2.0", "id": 9, "result": {"a": ' + "9" * 5000 + "}}", None),
    ('{"jsonrpc": "2.0", "id": 7, "method": 5}', (7, -32600)),
    ('{"jsonrpc": "2.0", "id": "8", "method": "tools/list", "params": []}', ("8", -32600)),
    (r'{"jsonrpc": "1.0", "id": "a\ud83d", "method": "ping"}', ("a?", -32700)),
    (
        '{"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {"a": ' + "[" * 400 + "]" * 400 + "}}",
        (9, -32700),
    ),
    ('{"jsonrpc": "2.0", "id": 10, "method": "tools/list", "params": {"a": ' + "9" * 5000 + "}}", (10, -32700)),
]


async def test_a_line_that_is_no_message_is_answered_and_half_a_character_is_lost_alone(served: dict[str, str]) -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    ask = {"name": "ask_helper", "arguments": {"prompt": "a\ud83d b"}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": ask}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    said = [json.dumps(begin), json.dumps(ready), *(line for line, _ in LINES), json.dumps(call)]
    process = await asyncio.create_subprocess_exec(*program(), env=served, stdin=-1, stdout=-1)
    assert process.stdin is not None and process.stdout is not None
    answers: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(PATIENCE):
            process.stdin.write("".join(f"{line}\n" for line in said).encode())
            while not answers or answers[-1]["id"] != 2:
                answers.append(json.loads(await process.stdout.readline()))
            process.stdin.close()
            assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert answers[-1]["result"]["content"][0]["text"] == "You said: a? b"
    refused = [(each["id"], each["error"]["code"]) for each in answers[1:-1]]
    assert refused == [expected for _, expected in LINES if expected is not None]


def test_a_bundle_that_is_not_asked_is_named(served: dict[str, str], project: Path) -> None:
    project.joinpath("bundle.md").write_text(HELPER.replace("You help.\n", ""))
    done = subprocess.run(
        program(), input="", env=served, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "bundle 'helper' has no instruction below its front matter: it is offered without ask_helper" in done.stderr


def test_a_bundle_that_is_not_trusted_is_not_served(served: dict[str, str]) -> None:
    asked = {**served, "AMPLIFIER_TRUST": ""}
    done = subprocess.run(program(), input="", env=asked, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "is not trusted" in done.stderr


# over HTTP


class listening:
    """The program on a port of its own, while the block runs: its process, its address and its token."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self._environment = environment
        self._arguments = arguments or ("--http", "0")
        self.told_later = ""

    def __enter__(self) -> tuple[subprocess.Popen[str], str, str]:
        command = program(*self._arguments)
        self._process = subprocess.Popen(command, env=self._environment, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        told = ""
        while (found := re.search(r"Serving on (\S+) with the token in (\S+)\n", told)) is None:
            line = self._process.stderr.readline()
            assert line, f"it ended: {told}"
            told += line
        self._reader = threading.Thread(target=self._read_rest)
        self._reader.start()
        return self._process, found[1], found[2]

    def _read_rest(self) -> None:
        assert self._process.stderr is not None
        self.told_later = self._process.stderr.read()

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


async def test_a_client_with_the_token_is_served_over_http(served: dict[str, str]) -> None:
    with listening(served) as (_, url, place):
        token = Path(place)
        assert token.stat().st_mode & 0o777 == 0o600
        headers = {"Authorization": f"Bearer {token.read_text()}"}
        async with (
            asyncio.timeout(PATIENCE),
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            result = await client.call_tool("ask_helper", {"prompt": "hello"})
    assert result.content[0].text == "You said: hello"


PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


STRANGERS = [
    ({"Authorization": ""}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Authorization": "bearer"}, 401),
    ({"Host": "evil.example"}, 421),
    ({"Origin": "https://evil.example"}, 403),
]


def test_requests_of_strangers_are_refused(served: dict[str, str]) -> None:
    with listening({**served, "AMPLIFIER_MCP_TOKEN": "the-token-of-this-test"}) as (_, url, shown):
        assert shown == "$AMPLIFIER_MCP_TOKEN"
        usual = {"Authorization": "Bearer the-token-of-this-test", "Accept": "application/json, text/event-stream"}
        answers = [
            httpx2.post(url, json=PING, headers={**usual, **headers}, timeout=PATIENCE) for headers, _ in STRANGERS
        ]
    assert [each.status_code for each in answers] == [status for _, status in STRANGERS]


def test_what_is_no_http_prints_nothing(served: dict[str, str]) -> None:
    broken = (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"no header\r\n\r\n", b"Upgrade: websocket\r\n\r\n")
    serving = listening(served)
    with serving as (_, url, _):
        place = urlsplit(url)
        for method, rest in itertools.product((b"GET", b"HEAD", b"POST"), broken):
            with socket.create_connection((str(place.hostname), place.port or 0), timeout=PATIENCE) as stranger:
                stranger.sendall(method + b" / HTTP/1.1\r\nHost: x\r\nConnection: close, Upgrade\r\n" + rest)
                while stranger.recv(4096):
                    pass
    assert serving.told_later == ""


@pytest.mark.parametrize("rest", [b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"Content-Length: 100\r\n\r\nabc"])
def test_a_client_that_ends_within_its_request_prints_nothing(served: dict[str, str], rest: bytes) -> None:
    serving = listening({**served, "AMPLIFIER_MCP_TOKEN": "the-token-of-this-test"})
    with serving as (_, url, _):
        place = urlsplit(url)
        accepted = b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        head = (
            b"POST /mcp HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer the-token-of-this-test\r\n"
            % place.netloc.encode()
        )
        for _ in range(2):
            with socket.create_connection((str(place.hostname), place.port or 0), timeout=PATIENCE) as client:
                client.sendall(head + accepted + rest)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
        assert httpx2.get(url).status_code == 401
    assert serving.told_later == ""


def test_a_port_that_is_taken_is_an_error_with_the_remedy(served: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = program("--http", str(taken.getsockname()[1]))
        done = subprocess.run(command, env=served, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert "Address already in use. Choose another one" in done.stderr and "Traceback" not in done.stderr
