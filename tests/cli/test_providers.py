"""Bundles with providers of real services, run by the program against servers that speak the services' protocols."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.wire import anthropic, openai
from tests.wire.server import Answer, WireServer

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {{name: reader}}
providers:
  - module: provider-{name}
    config: {{base_url: "{url}", max_retries: 0, model: fast, {more}}}
tools: [{{module: tool-filesystem}}]
---
You read files.
"""
KEY = "sk-ant-the-key-of-the-tests"
MORE = {"anthropic": "api_key: '${ANTHROPIC_API_KEY}'", "openai": "api: responses, api_key: '${OPENAI_API_KEY}'"}
"""The configuration of each provider, besides its address."""


def write_bundle(path: Path, url: str, name: str = "anthropic") -> None:
    path.write_text(BUNDLE.format(url=url, name=name, more=MORE[name]), encoding="utf-8")


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "amplifier_foundation", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def amplifier(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Give a command that ends with this code; return stdout and stderr."""
    done = await asyncio.to_thread(forks.run, arguments, imports=forks.SDKS)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


async def run(*arguments: str) -> dict[str, Any]:
    turn: dict[str, Any] = json.loads((await amplifier("run", "--json", *arguments))[0])["data"]
    return turn


async def roles_of(session_id: str) -> list[str]:
    shown = json.loads((await amplifier("session", "show", "--json", session_id))[0])["data"]
    return [message["role"] for message in shown["messages"]]


@pytest.fixture
def bundle(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    (project / "notes.md").write_text("Buy milk.\n", encoding="utf-8")
    return project / "bundle.md"


def script() -> list[Answer]:
    look = anthropic.call("toolu_1", "read_file", file_path="notes.md")
    return [
        anthropic.says(anthropic.thinking("A file.", signature="signed"), "I look.", look),
        anthropic.says("Milk is to be bought."),
        anthropic.says("In the fork: milk."),
        anthropic.says("Once more: milk."),
    ]


async def test_a_conversation_with_a_tool_is_forked_and_resumed(bundle: Path) -> None:
    async with WireServer(script()) as server:
        write_bundle(bundle, server.url)
        first = await run("What is in notes.md?")
        fork = await run("--fork", first["session_id"], "And in the fork?")
        resumed = await run("--resume", first["session_id"], "And again?")
    assert [turn["output"] for turn in (first, fork, resumed)] == [
        "Milk is to be bought.", "In the fork: milk.", "Once more: milk."
    ]  # fmt: skip
    bodies = [request.json for request in server.requests]
    assert {body["model"] for body in bodies} == {"claude-haiku-5-5"}
    assert "Buy milk." in json.dumps(bodies[1]["messages"][-1])
    signed = {"type": "thinking", "thinking": "A file.", "signature": "signed"}
    assert all(body["messages"][1]["content"][0] == signed for body in bodies[1:])
    cache = anthropic.PromptCache()
    found = [cache.read(body) for body in bodies]
    assert found[0] == 0
    assert found[1] < found[2] == found[3]  # the fork and the resumed session begin with what the source has sent

    everything = (await amplifier("session", "show", "--json", first["session_id"]))[0]
    assert KEY not in everything
    assert await roles_of(first["session_id"]) == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert await roles_of(fork["session_id"]) == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_reasoning_of_openai_goes_with_a_fork(bundle: Path) -> None:
    look = openai.call("call_1", "read_file", file_path="notes.md")
    answers = [
        openai.says(openai.thinking("A file.", encrypted="sealed"), "I look.", look),
        openai.says("Milk is to be bought."),
        openai.says("In the fork: milk."),
    ]
    async with WireServer(answers) as server:
        write_bundle(bundle, server.url, "openai")
        first = await run("What is in notes.md?")
        fork = await run("--fork", first["session_id"], "And in the fork?")
    assert [turn["output"] for turn in (first, fork)] == ["Milk is to be bought.", "In the fork: milk."]
    bodies = [request.json for request in server.requests]
    assert [item["type"] for item in bodies[2]["input"]] == [
        "message", "reasoning", "message", "function_call", "function_call_output", "message", "message"
    ]  # fmt: skip
    assert bodies[2]["input"][1]["encrypted_content"] == "sealed"
    assert "Buy milk." in bodies[2]["input"][4]["output"]
    assert len({body["prompt_cache_key"] for body in bodies}) == 1
    assert bodies[2]["input"][:5] == bodies[1]["input"]


@pytest.mark.parametrize("service", [anthropic, openai], ids=["anthropic", "openai"])
async def test_a_session_killed_in_the_middle_of_an_answer_goes_on(bundle: Path, service: Any) -> None:
    name = service.__name__.rpartition(".")[2]
    cut = service.says(service.text("Half", " an answer")).stall(after=4)
    async with WireServer([service.says("Good day."), cut, service.says("A whole answer.")]) as server:
        write_bundle(bundle, server.url, name)
        session_id = (await run("Good day"))["session_id"]
        server.arrived.clear()
        process = await start("run", "--resume", session_id, "Tell me more")
        await server.arrived.wait()
        process.kill()
        await process.communicate()
        await server.left.wait()
        assert await roles_of(session_id) == ["user", "assistant", "user"]
        turn = await run("--resume", session_id, "Go on")
    assert turn["output"] == "A whole answer."
    assert await roles_of(session_id) == ["user", "assistant", "user", "user", "assistant"]
    sent = json.dumps(server.requests[-1].json)
    assert sent.index("Good day.") < sent.index("Tell me more") < sent.index("Go on")
    assert "Half" not in sent


async def test_an_error_of_the_service_is_one_line_with_a_remedy(bundle: Path) -> None:
    refused = anthropic.fails(401, "authentication_error", f"invalid key {KEY}")
    async with WireServer([refused]) as server:
        write_bundle(bundle, server.url)
        out, err = await amplifier("run", "Good day", code=1)
    assert "401: invalid key [REDACTED]. Check the API key (ANTHROPIC_API_KEY" in err
    assert "Traceback" not in err
    assert KEY not in out + err


async def test_a_missing_key_is_told_with_its_variable(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    write_bundle(bundle, "http://127.0.0.1:9")
    _, err = await amplifier("run", "Good day", code=1)
    assert "api_key names the variable ANTHROPIC_API_KEY, which is not set. Set ANTHROPIC_API_KEY" in err
    assert "amplifier auth login" not in err  # the config names the variable: a kept key is not asked for


SERVICES = {
    "anthropic": (anthropic.models(anthropic.model("fast", context=200_000, output=64_000)), anthropic.says("OK")),
    "openai": (openai.models("fast"), openai.says("OK")),
}


@pytest.mark.parametrize("name", SERVICES)
async def test_a_provider_lists_its_models_and_is_tested(bundle: Path, name: str) -> None:
    async with WireServer(SERVICES[name]) as server:
        write_bundle(bundle, server.url, name)
        listed = json.loads((await amplifier("provider", "models", name, "--json"))[0])["data"]
        tested = json.loads((await amplifier("provider", "test", "--json"))[0])["data"]
    assert (listed["provider"], [model["id"] for model in listed["models"]]) == (name, ["fast"])
    assert (tested["provider"], tested["answer"]) == (name, "OK")
    assert len(server.requests) == 2
    assert "tools" not in server.requests[1].json
    assert json.loads((await amplifier("session", "list", "--json"))[0])["data"] == []


async def test_the_test_of_a_provider_says_what_is_wrong(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = anthropic.fails(401, "authentication_error", "invalid x-api-key")
    async with WireServer([refused]) as server:
        write_bundle(bundle, server.url)
        out, err = await amplifier("provider", "test", code=1)
    assert out == ""
    assert err.startswith("amplifier: anthropic: 401")
    assert "ANTHROPIC_API_KEY" in err
    assert KEY not in err
    out, err = await amplifier("provider", "test", "nobody", code=5)
    assert "provider 'provider-nobody' is not installed" in err
    bundle.write_text("---\nbundle: {name: empty}\n---\n")
    out, err = await amplifier("provider", "test", code=4)
    assert "the bundle has no provider. Name one: amplifier provider list" in err


async def test_providers_are_listed_with_the_place_of_their_key(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    write_bundle(bundle, "http://127.0.0.1:9")
    text = bundle.read_text().replace("tools:", "  - {module: provider-absent}\ntools:")
    bundle.write_text(text.replace("api_key: '${ANTHROPIC_API_KEY}'", ""))
    out, _ = await amplifier("provider", "list", "--json")
    rows = {row["provider"]: row for row in json.loads(out)["data"]}
    assert rows["anthropic"]["key"] == "ANTHROPIC_API_KEY (environment)"
    assert (rows["anthropic"]["model"], rows["anthropic"]["bundle"]) == ("fast", "reader")
    assert (rows["openai"]["key"], rows["openai"]["bundle"]) == ("not found", None)
    assert rows["playbook"]["key"] == "needs none"
    assert rows["absent"]["package"] == "not installed"
    assert KEY not in out


async def test_a_provider_of_the_bundle_without_a_configuration_is_listed_once(bundle: Path) -> None:
    bundle.write_text("---\nbundle: {name: reader}\nproviders: [{module: provider-anthropic}]\n---\n")
    out, _ = await amplifier("provider", "list", "--json")
    rows = [row for row in json.loads(out)["data"] if row["provider"] == "anthropic"]
    assert [row["bundle"] for row in rows] == ["reader"]
