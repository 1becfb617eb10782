"""One bundle, word for word, on the playbook and on the protocol of each service: only the settings differ."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from amplifier_foundation.cli import exits, invoke
from tests.wire.server import Answer, Request, WireServer
from tests.wire.services import SERVICES, Model

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: notes}
includes: [{bundle: model}]
session: {budget: {turns: 5}}
tools: [{module: tool-filesystem}, {module: tool-delegate}]
agents:
  reader: {description: Reads files., instruction: You read files.}
background_sessions:
  - name: reviewer
    triggers: [{module: trigger-manual}]
    instruction_template: "read {path}"
    on_complete_emit: notes:reviewed
  - name: summarizer
    triggers: [{module: trigger-session-event, config: {event_names: ["notes:reviewed"]}}]
    instruction_template: "sum up"
---
You look after notes.
"""
PAUSE, PROMPT = 0.01, 30
"""Seconds between the pieces of a story, and the most of them after a cancel: one or two, more on a busy machine."""
STORY = "Once upon a time " + "there was a note " * 500
PLAYBOOK: dict[str, Any] = {
    "rules": [
        {
            "when": {"user": r"^read (?P<one>\S+) and (?P<other>\S+)$"},
            "say": "I look.",
            "call": [
                {"tool": "read_file", "input": {"file_path": "{one}"}},
                {"tool": "read_file", "input": {"file_path": "{other}"}},
            ],
        },
        {"when": {"user": r"^read (?P<one>\S+)$"}, "call": {"tool": "read_file", "input": {"file_path": "{one}"}}},
        {"when": {"tool": "read_file"}, "say": "The last file has {lines} lines."},
        {
            "when": {"user": r"^ask about (?P<one>\S+)$"},
            "call": {"tool": "delegate", "input": {"agent": "reader", "instruction": "read {one}"}},
        },
        {"when": {"tool": "delegate"}, "say": "The reader says: {response}"},
        {"when": {"user": "^tell"}, "say": STORY},
    ],
    "otherwise": {"say": "You said: {prompt}"},
}
"""What the playbook says, and each of the services."""
SAID = ["The last file has 2 lines.", "The reader says: The last file has 1 lines.", "You said: third"]


class Person:
    """Gives commands in the folder of the bundle."""

    def __init__(self, folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.name = name
        self.server: WireServer | None = None
        self.model: Model | None = None
        self._capsys = capsys

    def choose(self, module: str, config: dict[str, Any]) -> None:
        """Choose the provider, in the settings of the project."""
        chosen = {"bundle": {"name": "model"}, "providers": [{"module": module, "config": config}]}
        (self.folder / "model.yaml").write_text(yaml.safe_dump(chosen))

    async def give(self, *arguments: str, code: int = exits.OK) -> Any:
        """Give a command that ends with this code; return the data that it prints, as JSON."""
        self._capsys.readouterr()
        ended = await asyncio.to_thread(invoke, arguments)
        out, err = self._capsys.readouterr()
        assert ended == code, err
        return json.loads(out)["data"] if "--json" in arguments and out else out + err

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Give a command to a process of its own."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "amplifier_foundation", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        """Return the messages of a session."""
        shown = await self.give("session", "show", session_id, "--json")
        return list(shown["messages"])


@pytest.fixture(params=["playbook", *SERVICES])
async def person(
    request: pytest.FixtureRequest,
    home: Path,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Person]:
    """A person in a folder with the bundle; the settings name the provider."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    (project / "bundle.md").write_text(BUNDLE)
    (project / "notes.md").write_text("Buy milk.\n")
    (project / "todo.md").write_text("Call.\nWrite.\n")
    person = Person(project, request.param, capsys)
    await person.give("config", "set", "bundles", "{model: ./model.yaml}", "--scope", "project")
    if request.param == "playbook":
        person.choose("provider-playbook", PLAYBOOK)
        yield person
        return
    service = SERVICES[request.param]
    person.model = Model(service, PLAYBOOK)
    async with WireServer(person.model.answer) as person.server:
        person.choose(f"provider-{service.provider}", service.configure(person.server.url))
        yield person
    assert person.model.refused == []


def texts_of(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the messages as roles and texts; a call is its tool and input, a result its tool."""
    told = []
    for message in messages:
        content = message["content"]
        if message["role"] == "tool":
            told.append(("tool", str(message.get("name"))))
            continue
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        told += [(message["role"], block["text"]) for block in blocks if block["type"] == "text"]
        told += [("call", f"{call['tool']} {json.dumps(call['arguments'])}") for call in message.get("tool_calls", ())]
    return told


async def test_a_conversation_with_tools_and_a_sub_agent_is_resumed_forked_and_ends_with_its_budget(
    person: Person,
) -> None:
    first = await person.give("run", "--json", "read notes.md and todo.md")
    session_id = first["session_id"]
    process = await person.start("run", "--json", "--resume", session_id, "ask about notes.md")
    out, err = await process.communicate()
    assert process.returncode == exits.OK, err.decode()
    second = json.loads(out)["data"]
    third = await person.give("session", "resume", "--json", session_id, "third")
    assert [turn["output"] for turn in (first, second, third)] == SAID
    assert [turn["turn_count"] for turn in (first, second, third)] == [1, 2, 3]
    whole = texts_of(await person.messages(session_id))
    assert whole == [
        ("user", "read notes.md and todo.md"),
        ("assistant", "I look."),
        ("call", 'read_file {"file_path": "notes.md"}'),
        ("call", 'read_file {"file_path": "todo.md"}'),
        ("tool", "read_file"),
        ("tool", "read_file"),
        ("assistant", SAID[0]),
        ("user", "ask about notes.md"),
        ("call", 'delegate {"agent": "reader", "instruction": "read notes.md"}'),
        ("tool", "delegate"),
        ("assistant", SAID[1]),
        ("user", "third"),
        ("assistant", SAID[2]),
    ]
    fork = await person.give("run", "--json", "--fork", f"{session_id}@1", "and here?")
    assert fork["output"] == "You said: and here?"
    forked = texts_of(await person.messages(fork["session_id"]))
    assert forked == [*whole[:7], ("user", "and here?"), ("assistant", "You said: and here?")]
    assert texts_of(await person.messages(session_id)) == whole
    for said in ("fourth", "fifth"):
        await person.give("run", "--json", "--resume", session_id, said)
    told = await person.give("run", "--resume", session_id, "sixth", code=exits.BUDGET)
    assert "used 5 of 5 turns" in told
    sessions = await person.give("session", "list", "--all", "--json")
    [child] = [each["session_id"] for each in sessions if each["name"] == "reader"]
    assert texts_of(await person.messages(child))[-1] == ("assistant", "The last file has 1 lines.")


async def test_a_background_session_is_woken_by_an_event_and_wakes_the_next_one(person: Person) -> None:
    await person.give("trigger", "fire", "reviewer", "--data", '{"path": "todo.md"}')
    up = await person.start("-q", "up", "--once")
    assert [await up.communicate(), up.returncode] == [(b"", b""), exits.OK]
    assert await person.give("trigger", "dead", "--json") == []
    ended = {each["name"]: each for each in await person.give("session", "list", "--all", "--json")}
    statuses = {name: each["status"] for name, each in ended.items()}
    assert statuses == {"notes": "idle", "reviewer": "completed", "summarizer": "completed"}
    assert texts_of(await person.messages(ended["reviewer"]["session_id"])) == [
        ("user", "read todo.md"),
        ("call", 'read_file {"file_path": "todo.md"}'),
        ("tool", "read_file"),
        ("assistant", SAID[0]),
    ]


@pytest.mark.parametrize("person", SERVICES, indirect=True)
async def test_a_cancelled_stream_is_closed_while_the_model_talks_and_its_text_is_kept(person: Person) -> None:
    assert person.server is not None
    assert person.model is not None
    answer_of = person.model.answer

    def talk(request: Request) -> Answer:
        answer = answer_of(request)
        return answer.steadily(PAUSE) if len(answer.pieces) > 500 else answer

    person.server.answer_by(talk)
    first = await person.give("run", "--json", "read notes.md")
    process = await person.start("run", "--jsonl", "--resume", first["session_id"], "tell")
    assert process.stdout is not None
    shown: list[str] = []
    while len(shown) < 5:
        fact = json.loads(await process.stdout.readline())
        shown += [fact["text"]] if fact["type"] == "text" else []
    sent = person.server.sent
    process.send_signal(signal.SIGINT)
    await person.server.left.wait()
    assert person.server.sent - sent <= PROMPT
    out, err = await process.communicate()
    result = json.loads(out.splitlines()[-1])
    assert (process.returncode, result["status"]) == (exits.CANCELLED, "cancelled"), err.decode()
    assert person.server.requests[-1] not in person.server.whole
    assert result["output"].startswith("".join(shown))
    assert STORY.startswith(result["output"])
    kept = texts_of(await person.messages(first["session_id"]))
    assert kept[-2:] == [("user", "tell"), ("assistant", result["output"])]
    process = await person.start("run", "--json", "--resume", first["session_id"])
    out, err = await process.communicate()
    assert process.returncode == exits.OK, err.decode()
    assert json.loads(out)["data"]["output"] == "You said: Your last message was cut. Go on where it ends."
    assert result["output"].strip() in json.dumps(person.server.requests[-1].json)


@pytest.mark.parametrize("person", SERVICES, indirect=True)
async def test_the_command_line_chooses_the_provider(person: Person) -> None:
    assert person.server is not None
    assert person.model is not None
    person.choose("provider-playbook", {"otherwise": {"say": "The playbook."}})
    service = person.model.service
    config = {f"provider-{service.provider}": {"config": service.configure(person.server.url)}}
    (person.folder / ".amplifier" / "settings.local.yaml").write_text(yaml.safe_dump({"overrides": config}))
    chosen = await person.give("run", "--json", "--provider", service.provider, "read notes.md and todo.md")
    plain = await person.give("run", "--json", "read notes.md and todo.md")
    assert [turn["output"] for turn in (chosen, plain)] == [SAID[0], "The playbook."]
