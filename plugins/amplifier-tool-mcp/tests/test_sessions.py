"""Whole sessions that call tools of MCP servers, from a prompt to the stored answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.settings import write_setting

from .conftest import scripted

pytestmark = pytest.mark.slow

TOOLS = [f"mcp__{name}" for name in ("all__echo", "clock__get_current_time", "one__echo", "mine__echo", "theirs__echo")]
INPUT = {"text": "{text}", "message": "{text}", "timezone": "{text}"}
RULES = [
    rule
    for tool in TOOLS
    for rule in (
        {"when": {"user": f"^call {tool} (?P<text>.+)"}, "call": {"tool": tool, "input": INPUT}},
        {"when": {"tool": tool}, "say": "{result}"},
    )
]
BUNDLE = f"""---
bundle: {{name: desk}}
providers:
  - module: provider-playbook
    config: {json.dumps({"rules": RULES, "otherwise": {"say": "You said: {prompt}"}})}
tools:
  - module: tool-mcp
    config: CONFIG
---
You are at a desk.
"""


@pytest.fixture
def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """Run a turn with these servers; return what it says, and what stands on stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")

    def turn(
        prompt: str, servers: dict[str, Any], *options: str, code: int = exits.OK, **config: Any
    ) -> tuple[str, str]:
        (folder / "bundle.md").write_text(
            BUNDLE.replace("CONFIG", json.dumps({"servers": servers, "start_timeout": 60, **config}))
        )
        capsys.readouterr()
        assert invoke(["run", *options, prompt]) == code
        out, err = capsys.readouterr()
        return out, err

    return turn


@pytest.fixture
def allowed(home: Path) -> None:
    """The person allows all tools of all servers."""
    write_setting("user", "permissions.allow", ["mcp__*"])


@pytest.mark.usefixtures("allowed")
def test_a_turn_calls_servers_of_npm_and_pypi(run: Any, everything: str, clock: dict[str, Any]) -> None:
    servers = {"all": {"command": "node", "args": [everything]}, "clock": clock}
    assert run("call mcp__all__echo hello", servers)[0] == "Echo: hello\n"
    assert '"timezone": "Asia/Tokyo"' in run("call mcp__clock__get_current_time Asia/Tokyo", servers)[0]


def test_without_a_person_s_word_no_tool_is_called(run: Any) -> None:
    said, shown = run("call mcp__one__echo hello", {"one": scripted()}, code=exits.WAITING)
    assert said.startswith("Denied by hook: User denied: mcp__one__echo(")
    assert "tools of servers are asked for" in shown


def test_a_bundle_allows_itself_nothing(run: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("x", {"one": scripted()})
    text = (folder / "bundle.md").read_text().replace("tools:\n", "permissions: {allow: ['mcp__*']}\ntools:\n", 1)
    (folder / "bundle.md").write_text(text)
    capsys.readouterr()
    assert invoke(["run", "call mcp__one__echo hello"]) == exits.WAITING
    assert capsys.readouterr().out.startswith("Denied by hook: User denied")


@pytest.mark.usefixtures("allowed")
def test_a_server_that_is_missing_is_a_line_and_the_session_goes_on(run: Any) -> None:
    servers = {"one": scripted(), "bad": scripted("exits")}
    said, shown = run("call mcp__one__echo hello", servers)
    assert said == "echo: hello\n"
    assert "the MCP server 'bad' is missing: it ended with exit code 3: the key is wrong" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("mode", "seconds", "why"),
    [
        ("silent", 0.2, "it is not ready after 0.2 seconds"),
        ("exits", 60, "it ended with exit code 3: the key is wrong"),
    ],
)
def test_a_prompt_of_a_server_that_is_missing_is_not_said_to_the_model(
    run: Any, mode: str, seconds: float, why: str
) -> None:
    said, shown = run(
        "/mcp:one:summarise topic=cats", {"one": scripted(mode)}, start_timeout=seconds, code=exits.FAILED
    )
    assert said == ""
    assert f"amplifier: /mcp:one:summarise of tool-mcp failed: the MCP server 'one' is missing: {why}\n" in shown


@pytest.mark.usefixtures("allowed")
def test_a_server_that_dies_in_a_call_costs_that_call(run: Any) -> None:
    said, _ = run("call mcp__one__echo die", {"one": scripted()})
    assert said.startswith("the MCP server 'one' was lost during the call: it was ended by signal 9")


@pytest.mark.usefixtures("allowed")
def test_a_resumed_session_has_its_servers_again(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run("call mcp__one__echo hello", {"one": scripted()})
    assert invoke(["run", "--resume", "last", "call mcp__one__echo again"]) == exits.OK
    assert capsys.readouterr().out == "echo: again\n"


@pytest.mark.usefixtures("allowed")
def test_no_secret_of_a_server_is_stored(
    run: Any, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTES_TOKEN", "swordfish-4711-very-secret")
    servers = {"one": scripted(env={"NOTES_TOKEN": "${NOTES_TOKEN}"})}
    said, shown = run("call mcp__one__echo environment", servers)
    assert "NOTES_TOKEN" in said
    assert "swordfish" not in said + shown
    for file in home.rglob("*"):
        assert not file.is_file() or b"swordfish" not in file.read_bytes()


def test_settings_add_servers_to_a_bundle_and_switch_its_own_off(run: Any, home: Path) -> None:
    servers = {"mine": scripted(trusted=True), "theirs": {"enabled": False}}
    write_setting("user", "overrides.tool-mcp.config.servers", servers)
    said, _ = run("call mcp__mine__echo hello", {"theirs": scripted()})
    assert said == "echo: hello\n"  # a trusted server is not asked for
    said, _ = run("call mcp__theirs__echo hello", {"theirs": scripted()})
    assert said.startswith("Error: unknown tool 'mcp__theirs__echo'. Available: mcp__mine__echo")


def test_a_server_of_the_settings_that_cannot_work_is_a_line_and_the_others_are_there(
    run: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"mine": scripted(trusted=True), "typo": {"command": "htps://docs.example/mcp"}}
    write_setting("user", "overrides.tool-mcp.config.servers", servers)
    said, shown = run("call mcp__mine__echo hello", {})
    assert said == "echo: hello\n"
    assert "the MCP server typo: command: is an address; a url stands alone, and begins with https://" in shown
    assert invoke(["mcp", "list"]) == exits.OK
    out, err = capsys.readouterr()
    assert "mine" in out
    assert "the MCP server typo: command: is an address" in out + err


def test_a_wrong_configuration_is_named_by_its_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for servers, problem in (
        ({"one": {"comand": "x"}}, "servers.one.comand: unknown key; did you mean 'command'?"),
        ({"one": {"command": "x", "url": "https://x.example"}}, "servers.one: needs either a command or a url"),
        ({"one": {"command": sys.executable, "args": [1]}}, "servers.one.args.0: Input should be a valid string"),
    ):
        (folder / "bundle.md").write_text(BUNDLE.replace("CONFIG", json.dumps({"servers": servers})))
        assert invoke(["bundle", "validate"]) == exits.USAGE
        out, err = capsys.readouterr()
        assert problem in out + err
