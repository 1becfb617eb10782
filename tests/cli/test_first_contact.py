"""The first contact with the services themselves: a key and nothing else, in a fresh folder."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.settings.keys import find_key, keep_key
from tests import forks
from tests.wire import anthropic, openai
from tests.wire.server import Answer, WireServer

KEY = "sk-ant-the-key-of-the-first-contact"


@pytest.fixture(autouse=True)
def _fresh(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def amplifier(*arguments: str, code: int = 0, stdin: str = "", **environ: str) -> tuple[str, str]:
    """Give a command that ends with this code; return stdout and stderr."""
    done = await asyncio.to_thread(forks.run, arguments, env={**os.environ, **environ}, input=stdin, imports=forks.SDKS)
    assert done.returncode == code, done.stderr
    assert KEY not in done.stdout + done.stderr
    return done.stdout, done.stderr


def keys_sent(server: WireServer) -> set[str]:
    return {request.headers["x-api-key" if "x-api-key" in request.headers else "authorization"].removeprefix("Bearer ")
            for request in server.requests}  # fmt: skip


async def test_a_key_in_the_environment_and_two_commands(project: Path) -> None:
    async with WireServer([anthropic.says("Good day.")]) as server:
        environ = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
        assert (await amplifier("init", **environ))[0] == "bundle.md\n"
        assert (await amplifier("run", "Hello", **environ))[0] == "Good day.\n"
    assert keys_sent(server) == {KEY}
    assert KEY not in (project / "bundle.md").read_text()


async def test_a_kept_key_and_no_bundle(home: Path) -> None:
    listed = anthropic.models(anthropic.model("claude-sonnet-5-5", context=1_000_000, output=64_000))
    async with WireServer([listed, anthropic.says("Good day."), anthropic.says("Again.")]) as server:
        environ = {"ANTHROPIC_BASE_URL": server.url}
        out, _ = await amplifier("auth", "login", "anthropic", "--check", stdin=f"{KEY}\n", **environ)
        assert out.startswith("ANTHROPIC_API_KEY: kept in ")
        turn = json.loads((await amplifier("run", "--json", "--model", "fast", "Hello", **environ))[0])["data"]
        resumed, _ = await amplifier("run", "--resume", turn["session_id"], "Again", **environ)
    assert (turn["output"], resumed) == ("Good day.", "Again.\n")
    assert keys_sent(server) == {KEY}
    assert {request.json["model"] for request in server.requests[1:]} == {"claude-haiku-5-5"}
    stored = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "keys.json")
    assert KEY.encode() not in stored


async def test_a_wrong_key_is_not_kept() -> None:
    async with WireServer([anthropic.fails(401, "authentication_error", f"invalid key {KEY}")] * 3) as server:
        _, err = await amplifier(
            "auth", "login", "anthropic", "--check", stdin=KEY, code=4, ANTHROPIC_BASE_URL=server.url
        )
    assert "the key is not kept: anthropic: 401: invalid key [REDACTED]. Check the API key" in err
    with pytest.raises(LookupError):
        find_key("ANTHROPIC_API_KEY")


async def test_a_missing_key_is_told_with_the_command() -> None:
    _, err = await amplifier("run", "--provider", "anthropic", "Hello", code=1)
    assert "anthropic: there is no API key. Set ANTHROPIC_API_KEY" in err
    assert err.strip().endswith("or run: amplifier auth login anthropic")


BOTH = """---
bundle: {{name: both}}
session:
  provider_preferences: [{{provider: anthropic, model: strong}}, {{provider: openai, model: fast}}]
providers:
  - module: provider-anthropic
    config: {{base_url: "{anthropic}", api_key: "secret://ANTHROPIC_API_KEY", max_retries: 0}}
  - module: provider-openai
    config: {{base_url: "{openai}", api_key: "secret://OPENAI_API_KEY", api: responses, max_retries: 0}}
tools: [{{module: tool-filesystem}}]
---
You read files.
"""


@pytest.mark.parametrize(
    "failure",
    [
        anthropic.fails(529, "overloaded_error", "Overloaded"),
        anthropic.fails(429, "rate_limit_error", "Slow down", retry_after="900"),
        anthropic.fails(400, "invalid_request_error", "Your credit balance is too low"),
        anthropic.says("Half an answer").cut(after=0),
    ],
    ids=["overloaded", "rate limit", "quota", "no answer"],
)
async def test_openai_answers_while_anthropic_is_out(failure: Answer, project: Path, home: Path) -> None:
    keep_key("ANTHROPIC_API_KEY", KEY)
    keep_key("OPENAI_API_KEY", f"{KEY}-2")
    (project / "notes.md").write_text("Buy milk.\n")
    look = openai.call("call_1", "read_file", file_path="notes.md")
    answers = [openai.says("I look.", look), openai.says("Milk is to be bought.")]
    async with WireServer([failure] * 2) as first, WireServer(answers) as second:
        (project / "bundle.md").write_text(BOTH.format(anthropic=first.url, openai=second.url))
        if failure.cut_after is not None:  # a broken connection is no outage
            await amplifier("run", "What is in notes.md?", code=75)
            return
        out, err = await amplifier("run", "--jsonl", "What is in notes.md?")
    facts = [json.loads(line) for line in out.splitlines()]
    assert facts[-1]["output"] == "Milk is to be bought."
    told = [fact for fact in facts if fact["type"] == "fallback"]
    assert [(fact["from"], fact["provider"]) for fact in told] == [("anthropic", "openai")] * 2
    assert (len(first.requests), first.requests[0].json["model"]) == (1, "claude-opus-5-5")
    assert {request.json["model"] for request in second.requests} == {"gpt-6-luna"}
    assert (keys_sent(first), keys_sent(second)) == ({KEY}, {f"{KEY}-2"})
    shown = json.loads((await amplifier("session", "show", "--json", facts[-1]["session_id"]))[0])["data"]
    marks: list[Any] = [
        message["metadata"]["fallback"]["provider"] for message in shown["messages"] if message["role"] == "assistant"
    ]
    assert marks == ["openai", "openai"]
    assert err == ""


async def test_the_settings_hold_for_a_provider_without_a_bundle(project: Path) -> None:
    async with WireServer([anthropic.says("Good day."), anthropic.says("Again.")]) as server:
        config = {"provider-anthropic": {"config": {"base_url": server.url, "api_key": KEY, "default_model": "strong"}}}
        (project / ".amplifier").mkdir()
        (project / ".amplifier" / "settings.local.yaml").write_text(json.dumps({"overrides": config}))
        assert (await amplifier("run", "--provider", "anthropic", "Hello"))[0] == "Good day.\n"
        assert (await amplifier("run", "--provider", "anthropic", "--model", "fast", "Hello"))[0] == "Again.\n"
    assert [request.json["model"] for request in server.requests] == ["claude-opus-5-5", "claude-haiku-5-5"]
