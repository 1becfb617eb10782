"""The clients of the official SDKs converse with the agent, also about sessions that other programs have made."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
import pytest
from acp.connection import StreamDirection, StreamEvent
from acp.schema import AllowedOutcome, PermissionOption, RequestPermissionResponse, ToolCallUpdate

from tests.programs import install_from_npm, require

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "amplifier_foundation", "acp"]
PATIENCE = 60.0
BUNDLE = """---
bundle: {name: desk}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^write (?P<name>\\S+)'}
          call: {tool: write_file, input: {file_path: "{name}", content: "hello\\n"}}
        - {when: {tool: write_file}, say: "Done."}
        - {when: {user: "^pay"}, call: {tool: pay, input: {bank: bank.example}}}
        - {when: {tool: pay}, say: "{result}"}
      otherwise: {say: "You said: {prompt}"}
tools:
  - {module: tool-filesystem}
  - {module: pay, source: ./pay.py}
  - {module: tool-skills, config: {sources: [bundle]}}
permissions: {ask: [write_file]}
background_sessions:
  - name: watcher
    triggers: [{module: trigger-file-watcher, config: {patterns: ["*.new"], debounce_ms: 1}}]
---
You are at a desk.
"""
PAY = """
class Pay:
    name, description = "pay", "Pays."
    input_schema = {"type": "object", "properties": {"bank": {"type": "string"}}}
    accesses = {"bank": "host"}

    async def execute(self, input):
        return "paid"

async def mount(coordinator, config):
    await coordinator.mount("tools", Pay())
"""
SLOW = """---
bundle: {name: slow}
providers: [{module: provider-playbook, config: {delay_ms: 600000, otherwise: {say: "late"}}}]
---
You are slow.
"""


@pytest.fixture(scope="module")
def shared_desk(editors: Any) -> Path:
    """A project whose background session wakes on new files, and where a payment is asked for."""
    desk: Path = editors.make("desk", BUNDLE, pay_py=PAY)
    (desk / "commands").mkdir()
    (desk / "commands" / "greet.md").write_text("---\nargument-hint: WHOM\n---\nSay hello to $1.\n")
    return desk


@pytest.fixture(scope="module")
def stored(shared_desk: Path, editors: Any) -> list[str]:
    """The ids of two sessions: one of `amplifier run`, and one woken by a new file."""
    editors.run("up", "--once", folder=shared_desk)  # it takes the present files as known
    (shared_desk / "a.new").write_text("news")
    editors.run("up", "--once", folder=shared_desk)
    editors.run("run", "from a terminal", folder=shared_desk)
    editor = editors.start()
    sessions = editor.call("session/list", cwd=str(shared_desk))["sessions"]
    assert editor.close() == 0
    assert [bool(each["_meta"]["amplifier"].get("eventId")) for each in sessions] == [False, True]
    return [each["sessionId"] for each in sessions]


@pytest.fixture
def desk(shared_desk: Path, editors: Any) -> Path:
    """The project without what a conversation leaves behind."""
    for left in (*shared_desk.glob("?.txt"), editors.home / "settings.yaml"):
        left.unlink(missing_ok=True)
    return shared_desk


@pytest.fixture
def slow(make: Any) -> Path:
    """A project whose answers take ten minutes."""
    return make(SLOW, "slow")  # type: ignore[no-any-return]


class Client(acp.Client):
    """A client of the Python SDK: it keeps what it is told, and chooses the option that begins with `answer`."""

    def __init__(self) -> None:
        self.answer = "Allow once"
        self.questions = 0
        self.heard: list[tuple[str, Any]] = []
        self.messages: list[StreamEvent] = []

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: Any
    ) -> RequestPermissionResponse:
        self.questions += 1
        option = next(each for each in options if each.name.startswith(self.answer))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.heard.append((session_id, update))

    def said(self, session_id: str) -> list[str]:
        """Return the texts of a session so far."""
        heard = [update for its_id, update in self.heard if its_id == session_id]
        return [each.content.text for each in heard if each.session_update.endswith("_message_chunk")]


def check_messages(protocol: Any, messages: list[tuple[str, dict[str, Any]]]) -> None:
    """Hold the messages of a conversation, each with its sender, against the schema."""
    asked: dict[tuple[str, Any], str] = {}
    for sender, message in messages:
        if "method" in message:
            protocol.check(message)
            asked[sender, message.get("id")] = message["method"]
        else:
            other = "agent" if sender == "client" else "client"
            protocol.check(message, asked[other, message["id"]])
    assert len(messages) > 100


async def test_the_client_of_the_python_sdk_does_all_that_editors_do(
    editors: Any, desk: Path, slow: Path, stored: list[str]
) -> None:
    client = Client()
    options = {"use_unstable_protocol": True, "observers": [client.messages.append]}
    spawned = acp.spawn_agent_process(client, *COMMAND, env=editors.environment, cwd=desk, **options)
    async with asyncio.timeout(PATIENCE), spawned as (agent, process):
        await _converse(agent, client, desk, slow, stored)
    assert process.returncode == 0
    senders = {StreamDirection.INCOMING: "agent", StreamDirection.OUTGOING: "client"}
    check_messages(editors.protocol, [(senders[each.direction], each.message) for each in client.messages])


async def _converse(agent: Any, client: Client, desk: Path, slow: Path, stored: list[str]) -> None:
    folder = str(desk)

    async def prompt(session: str, text: str) -> str:
        answer = await agent.prompt(session_id=session, prompt=[acp.text_block(text)])
        return answer.stop_reason  # type: ignore[no-any-return]

    async def history(session: str) -> list[str]:
        client.heard.clear()
        await agent.load_session(cwd=folder, session_id=session, mcp_servers=[])
        return client.said(session)

    hello = await agent.initialize(protocol_version=1)
    assert hello.protocol_version == 1 and hello.agent_capabilities.session_capabilities.fork is not None

    first = (await agent.new_session(cwd=folder, mcp_servers=[])).session_id
    assert await prompt(first, "write a.txt") == "end_turn"
    assert (desk / "a.txt").exists() and client.questions == 1
    client.answer = "Allow for this session"
    await prompt(first, "write b.txt")
    await prompt(first, "write b.txt")
    assert client.questions == 2
    client.answer = "Deny"
    await prompt(first, "write c.txt")
    assert not (desk / "c.txt").exists() and client.questions == 3
    client.answer = "Allow always"
    await prompt(first, "pay")
    await prompt((await agent.new_session(cwd=folder, mcp_servers=[])).session_id, "pay")
    assert client.questions == 4

    greeted = (await agent.new_session(cwd=folder, mcp_servers=[])).session_id
    assert await prompt(greeted, "/greet Ann") == "end_turn"
    assert "".join(client.said(greeted)) == "You said: Say hello to Ann."
    told = [
        each for its_id, each in client.heard if (its_id, each.session_update) == (greeted, "available_commands_update")
    ]
    assert {each.name: each.input and each.input.root.hint for each in told[-1].available_commands}["greet"] == "WHOM"

    waiting = (await agent.new_session(cwd=str(slow), mcp_servers=[])).session_id
    running = asyncio.create_task(prompt(waiting, "one"))
    await asyncio.sleep(0)
    await agent.cancel(session_id=waiting)
    assert await running == "cancelled"

    source = (await agent.new_session(cwd=folder, mcp_servers=[])).session_id
    await prompt(source, "one")
    await prompt(source, "two")
    for session in (source, *stored):
        before = await history(session)
        at = next(each.message_id for _, each in client.heard if each.session_update == "agent_message_chunk")
        fork = (await agent.fork_session(session_id=session, cwd=folder)).session_id
        assert await prompt(fork, "three") == "end_turn"
        assert await history(fork) == [*before, "three", "You said: three"]
        assert await history(session) == before
        for meta in (
            {"amplifier": {"fork": {"messageId": at}}},
            {"jetbrains": {"air": {"fork": {"version": 1, "messageId": at}}}},
        ):
            early = (await agent.fork_session(session_id=session, cwd=folder, **meta)).session_id
            assert await history(early) == before[:2]
        listed = await agent.list_sessions(cwd=folder)
        assert {fork, early} <= {each.session_id for each in listed.sessions}
        await agent.close_session(session_id=session)
        client.heard.clear()
        await agent.resume_session(session_id=session, cwd=folder)
        assert client.said(session) == []
        await agent.close_session(session_id=session)
        with pytest.raises(acp.RequestError) as caught:
            await prompt(session, "four")
        assert caught.value.code == -32002


@pytest.fixture(scope="module")
def sdk(pytestconfig: pytest.Config) -> Path:
    """A folder with the TypeScript SDK, installed once, and the client that uses it."""
    require("node")
    folder = install_from_npm(pytestconfig.cache, "acp", HERE / "package.json")
    shutil.copy(HERE / "client.mjs", folder)
    return folder


def test_the_client_of_the_typescript_sdk_does_all_that_editors_do(
    editors: Any, desk: Path, slow: Path, stored: list[str], sdk: Path
) -> None:
    plan = {"command": COMMAND, "folder": str(desk), "slow": str(slow), "stored": stored}
    done = subprocess.run(
        ["node", "client.mjs", json.dumps(plan)],
        cwd=sdk,
        env=editors.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heard = [json.loads(line) for line in done.stdout.splitlines()]
    check_messages(editors.protocol, [(each["from"], each["message"]) for each in heard])
