"""Sessions of each other program, resumed on servers that speak the services' protocols, with their tool calls."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import MessageParam
from openai.types.responses import ResponseInputParam
from pydantic import TypeAdapter

from tests import forks
from tests.other_programs import (
    CLAUDE_ID,
    CODEX_ID,
    FOLDER_ID,
    PIXEL,
    call,
    claude_session,
    codex_session,
    old_codex_lines,
    write_lines,
    write_session_folder,
)
from tests.wire import anthropic, gemini, openai
from tests.wire.server import WireServer

BUNDLE = """---
bundle: {{name: reader}}
providers:
  - module: provider-{name}
    config: {{base_url: "{url}", max_retries: 0, api_key: the-key-of-the-tests, {more}}}
---
You go on.
"""
SERVICES: dict[str, tuple[Any, str]] = {
    "anthropic": (anthropic, ""),
    "openai": (openai, "api: responses"),
    "gemini": (gemini, "default_model: gemini-3-pro"),
}
OLD_ID = "0197c000-0000-7000-8000-000000000001"
NAME, ID = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"), re.compile(r"[a-zA-Z0-9_-]{1,64}")


async def amplifier(*arguments: str) -> str:
    done = await asyncio.to_thread(forks.run, arguments, imports=forks.SDKS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_claude(folder: Path, project: str) -> tuple[Path, str, list[str]]:
    file = claude_session(project)
    file.user("Once more")
    file.answer("msg_01E", call("id with spaces/1", "Task", prompt="look"))  # it was killed here
    return file.write(folder / f"{CLAUDE_ID}.jsonl"), CLAUDE_ID, ["Read", "mcp__github__search_code", "Edit", "Task"]


def write_codex(folder: Path, project: str) -> tuple[Path, str, list[str]]:
    return codex_session(project).write(folder / "codex.jsonl"), CODEX_ID, ["shell", "local_shell", "apply_patch"]


def write_old_codex(folder: Path, project: str) -> tuple[Path, str, list[str]]:
    return write_lines(folder / "old.jsonl", old_codex_lines(project, OLD_ID)), OLD_ID, ["shell"]


def write_folder(folder: Path, project: str) -> tuple[Path, str, list[str]]:
    return write_session_folder(folder / FOLDER_ID, project), FOLDER_ID, ["bash", "bash"]


def check_anthropic(body: Any) -> list[str]:
    """Check a request as the service does; return the tools called in it."""
    messages = body["messages"]
    TypeAdapter(list[MessageParam]).validate_python(messages)
    assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    names: list[str] = []
    ids: set[str] = set()
    for answer, reply in zip(messages[1::2], messages[2::2], strict=True):
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        names += [block["name"] for block in calls]
        assert all(ID.fullmatch(block["id"]) and NAME.fullmatch(block["name"]) for block in calls)
        assert not ids & {block["id"] for block in calls}
        ids |= {block["id"] for block in calls}
        results = [block["tool_use_id"] for block in reply["content"] if block["type"] == "tool_result"]
        assert sorted(results) == sorted(block["id"] for block in calls)
        assert [block["type"] for block in reply["content"][: len(results)]] == ["tool_result"] * len(results)
        assert answer["content"][-1]["type"] not in ("thinking", "redacted_thinking")
    texts = [block["text"] for message in messages for block in message["content"] if block["type"] == "text"]
    assert all(text.strip() for text in texts)
    return names


def check_openai(body: Any) -> list[str]:
    items = body["input"]
    TypeAdapter(ResponseInputParam).validate_python(items)
    calls = [item for item in items if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    assert sorted(outputs) == sorted({item["call_id"] for item in calls})
    assert all(ID.fullmatch(item["call_id"]) and NAME.fullmatch(item["name"]) for item in calls)
    assert all(isinstance(json.loads(item["arguments"]), dict) for item in calls)
    return [item["name"] for item in calls]


def check_gemini(body: Any) -> list[str]:
    contents = body["contents"]
    names = []
    assert [each["role"] for each in contents] == ["user", "model"] * (len(contents) // 2) + ["user"]
    for answer, reply in zip(contents[1::2], contents[2::2], strict=True):
        called = [part["functionCall"] for part in answer["parts"] if "functionCall" in part]
        results = [part["functionResponse"] for part in reply["parts"] if "functionResponse" in part]
        assert sorted((each["id"], each["name"]) for each in results) == sorted((e["id"], e["name"]) for e in called)
        names += [each["name"] for each in called]
    assert all(NAME.fullmatch(name) for name in names)
    return names


CHECKS: dict[str, Callable[[Any], list[str]]] = {
    "anthropic": check_anthropic,
    "openai": check_openai,
    "gemini": check_gemini,
}


@pytest.mark.parametrize("service", SERVICES)
async def test_the_imported_session_of_each_program_is_resumed_on_each_service(
    home: Path, project: Path, tmp_path: Path, service: str
) -> None:
    written = [write(tmp_path, str(project)) for write in (write_claude, write_codex, write_old_codex, write_folder)]
    module, more = SERVICES[service]
    await amplifier("session", "import", *(str(path) for path, _, _ in written))
    async with WireServer([module.says("It goes on.")] * len(written)) as server:
        text = BUNDLE.format(name=service, url=server.url, more=more)
        (project / "bundle.md").write_text(text, encoding="utf-8")
        for _, session_id, _ in written:
            turn = json.loads(await amplifier("run", "--json", "--resume", session_id, "And now?"))["data"]
            assert turn["output"] == "It goes on."
    bodies = [gemini.read(each.json) if service == "gemini" else each.json for each in server.requests]
    assert [CHECKS[service](body) for body in bodies] == [tools for _, _, tools in written]
    sent = [json.dumps(body) for body in bodies]
    assert all("And now?" in body for body in sent)
    assert [PIXEL[:20] in body for body in sent] == [True, True, False, False]


async def test_thinking_goes_back_to_the_service_that_signed_it_and_to_no_other(
    home: Path, project: Path, tmp_path: Path
) -> None:
    claude, _, _ = write_claude(tmp_path, str(project))
    codex, _, _ = write_codex(tmp_path, str(project))
    await amplifier("session", "import", str(claude), str(codex))
    sent = {}
    for service in ("anthropic", "openai"):
        module, more = SERVICES[service]
        for session_id in (CLAUDE_ID, CODEX_ID):
            async with WireServer([module.says("Done.")]) as server:
                text = BUNDLE.format(name=service, url=server.url, more=more)
                (project / "bundle.md").write_text(text, encoding="utf-8")
                await amplifier("run", "--fork", f"{session_id}@1", "And now?")
            sent[service, session_id] = json.dumps(server.requests[0].json)
    assert {key: "EqQBCkYIBxgCKkD" in body for key, body in sent.items() if key[1] == CLAUDE_ID} == {
        ("anthropic", CLAUDE_ID): True,
        ("openai", CLAUDE_ID): False,
    }
    assert {key: "gAAAAAB" in body for key, body in sent.items() if key[1] == CODEX_ID} == {
        ("anthropic", CODEX_ID): False,
        ("openai", CODEX_ID): True,
    }
    assert "gAAAAAC" not in sent["openai", CODEX_ID]  # it has no id, and the service would not take it
