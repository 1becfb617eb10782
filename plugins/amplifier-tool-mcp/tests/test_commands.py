"""`amplifier mcp`: servers in settings, their tests, and the trust in those of a project."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.security.trust import NotTrusted
from amplifier_foundation.security.trust_servers import check_servers, find_file, read_trusted
from amplifier_foundation.settings import write_setting

from .conftest import SCRIPTED, scripted

BUNDLE = """---
bundle: {name: desk}
providers: [{module: provider-playbook}]
tools:
  - module: tool-mcp
    config: {servers: {shelf: {command: shelf, enabled: false}}}
---
"""


@pytest.fixture
def told(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Give a command in the project that ends with a code; return what it prints, on stderr where it fails."""
    monkeypatch.chdir(folder)

    def run(*arguments: str, code: int = exits.OK) -> str:
        capsys.readouterr()
        ended = invoke(arguments)
        out, err = capsys.readouterr()
        assert ended == code, (out, err)
        return out if code == exits.OK else err

    return run


@pytest.fixture
def listed(told: Callable[..., str]) -> Callable[[], list[dict[str, Any]]]:
    """Return the servers of the project."""
    return lambda: json.loads(told("mcp", "list", "--json"))["data"]  # type: ignore[no-any-return]


def test_a_server_is_added_tested_and_removed(told: Any, listed: Any, home: Path) -> None:
    assert told("mcp", "list") == ""
    added = told("mcp", "add", "notes", "--timeout", "5", "--", sys.executable, "-S", SCRIPTED)
    assert added == f"{home}/settings.yaml: notes is added. Try it: amplifier mcp test notes\n"
    [row] = listed()
    assert (row["name"], row["type"], row["source"], row["trusted"]) == ("notes", "stdio", "user settings", False)
    shown = told("mcp", "test", "notes")
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [
        ["tool", "mcp__notes__echo"],
        ["prompt", "/mcp:notes:summarise"],
        ["prompt", "/mcp:notes:translate"],
    ]
    facts = json.loads(told("mcp", "test", "notes", "--json"))["data"]
    assert (facts["server"], facts["protocol"], facts["resources"]) == ("scripted", "2025-06-18", True)
    assert told("mcp", "remove", "notes") == f"{home}/settings.yaml: notes is removed\n"
    assert listed() == []


def test_a_remote_server_has_headers_and_a_project_has_servers(told: Any, listed: Any, folder: Path) -> None:
    told("mcp", "add", "far", "https://far.example/mcp", "-H", "Authorization: Bearer ${FAR}", "--scope", "project")
    assert "Bearer ${FAR}" in (folder / ".amplifier" / "settings.yaml").read_text()
    assert [(each["name"], each["type"], each["source"]) for each in listed()] == [("far", "http", "project settings")]


def test_the_servers_of_a_bundle_are_listed_also_when_they_are_off(told: Any, listed: Any, folder: Path) -> None:
    (folder / "bundle.md").write_text(BUNDLE)
    assert [(each["name"], each["source"], each["enabled"]) for each in listed()] == [("shelf", "bundle", False)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["leak", "-e", "TOKEN=ghp_abcdefghij1234567890", "--", "run"], "a secret is written here"),
        (["leak", "-H", "Authorization: Bearer abcdefgh12345678", "https://x.example/"], "a secret is written here"),
        (["leak", "--", "run", "--password", "hunter2secret"], "a secret is written here"),
        (["one", "--env", "TOKEN", "--", "run"], "--env is NAME=VALUE, not 'TOKEN'"),
        (["one", "--header", "A:b", "--", "run"], "--env and --cwd are for a command, --header is for an address"),
        (["one", "--trusted", "--scope", "project", "--", "run"], "--trusted is for your own settings"),
        (["one", "ftp://x"], "servers.one: command: is an address; a url stands alone, and begins with https:// or"),
        (["one", "htps://docs.example/mcp"], "servers.one: command: is an address"),
        (["one", "https://docs.example/mcp", "more"], "servers.one: command: is an address"),
        (["a\tb", "--", "run"], "is no name of a server; use letters, digits, - and _"),
    ],
)
def test_what_cannot_work_is_not_added(told: Any, listed: Any, arguments: list[str], problem: str) -> None:
    assert problem in told("mcp", "add", *arguments, code=exits.USAGE)
    assert listed() == []


@pytest.mark.parametrize("verb", [["add", "x", "--", "run"], ["remove", "x"], ["login", "x"]])
def test_no_session_adds_servers(told: Any, monkeypatch: pytest.MonkeyPatch, verb: list[str]) -> None:
    monkeypatch.setenv("AMPLIFIER_SESSION", "1")
    assert "is for a person" in told("mcp", *verb, code=exits.WAITING)


def test_an_unknown_server_is_answered_with_the_known_ones(told: Any) -> None:
    told("mcp", "add", "notes", "--", "run")
    assert told("mcp", "test", "note", code=exits.NOT_FOUND) == (
        "amplifier: no MCP server is called 'note'. There are notes. Add one: amplifier mcp add NAME -- COMMAND\n"
    )


def test_a_server_that_cannot_be_used_says_why(told: Any) -> None:
    told("mcp", "add", "bad", "--", sys.executable, SCRIPTED, "exits")
    assert told("mcp", "test", "bad", code=exits.FAILED) == (
        "amplifier: the MCP server 'bad' cannot be used: it ended with exit code 3: the key is wrong\n"
    )


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ("mcp__open__echo", exits.OK, "allow: the rule mcp__open__* of the user settings"),
        ("mcp__open__gone", exits.FAILED, "deny: the rule mcp__open__gone of the bundle 'desk'"),
        ("mcp__shut__echo", exits.WAITING, "ask: tools of servers are asked for\n"),
        ("mcp__shut__echo(0123abcd)", exits.OK, "allow: the rule mcp__shut__echo(0123abcd) of the user settings"),
        ("mcp__mine__echo", exits.OK, "allow: the bundle's tools may do this in its working folder\n"),
        ("mcp_resources", exits.WAITING, "ask: tools of servers are asked for\n"),
    ],
)
def test_the_permissions_of_a_server_s_tools_are_explained_and_no_server_starts(
    call: str, code: int, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    started = folder / "started"
    server = {"command": "touch", "args": [str(started)]}
    config = {"servers": {"open": server, "shut": server, "off": {**server, "enabled": False}}}
    tools = [{"module": "tool-mcp", "config": config}]
    bundle = {"bundle": {"name": "desk"}, "tools": tools, "permissions": {"deny": ["mcp__open__gone"]}}
    (folder / "bundle.md").write_text(f"---\n{json.dumps(bundle)}\n---\n")
    write_setting("user", ("overrides", "tool-mcp", "config", "servers", "mine"), {**server, "trusted": True})
    write_setting("user", "permissions.allow", ["mcp__open__*", "mcp__shut__echo(0123abcd)"])
    assert invoke(["permission", "test", call]) == code
    assert capsys.readouterr().out.startswith(said)
    for unknown in ("mcp__off__echo", "mcp__none__echo", "mcp__open__"):
        assert invoke(["permission", "test", unknown]) == exits.USAGE
    assert not started.exists()


# the servers of a project


@pytest.fixture
def project_file(folder: Path) -> Path:
    """The `.mcp.json` of the project, with keys that other programs use."""
    server = {**scripted(), "alwaysAllow": ["echo"], "trusted": True}
    file = folder / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"one": server}}))
    return file


async def test_the_servers_of_a_project_run_when_they_are_trusted_as_they_are(
    open_room: Any, told: Any, project_file: Path
) -> None:
    async with open_room() as room:
        assert room.tools == {}
    [shown] = room.shown
    assert shown.startswith("the MCP servers of this project are left out: .mcp.json is not trusted")
    assert told("trust", "--yes") == f"{project_file} is trusted\n"
    async with open_room() as room:
        assert await room.echo("hello") == "echo: hello"
        assert room.tools["mcp__one__echo"].untrusted_results is True
    async with open_room(project_servers=False) as room:
        assert room.tools == {}
    project_file.write_text(project_file.read_text() + " ")
    async with open_room() as room:
        assert room.tools == {}
    assert ".mcp.json has changed since it was trusted" in room.shown[0]
    told("trust", "--yes", ".mcp.json")
    assert check_servers(project_file.parent) is None
    assert "is not trusted any more" in told("untrust", ".")
    with pytest.raises(NotTrusted):
        read_trusted(project_file)


@pytest.mark.parametrize("how", ["changed", "replaced", "created"])
async def test_the_scripts_that_servers_of_a_project_name_are_trusted_as_they_are(
    open_room: Any, told: Any, folder: Path, how: str
) -> None:
    server = Path(SCRIPTED).read_bytes()
    (folder / "tools").mkdir()
    script = folder / "tools" / "server.py"
    script.write_bytes(server)
    command = {"command": sys.executable, "args": ["-S", "-E", "server.py"], "cwd": "tools"}
    if how == "created":
        command = {"command": "sh", "args": ["-c", f"test -f go.sh && . ./go.sh; {sys.executable} tools/server.py"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": command}}))
    told("trust", "--yes")
    async with open_room() as room:
        assert await room.echo("hello") == "echo: hello"
    if how == "changed":
        script.write_bytes(server + b"# else")
    elif how == "replaced":
        (folder / "other.py").write_bytes(server + b"# else")
        script.unlink()
        script.symlink_to(folder / "other.py")
    else:
        (folder / "go.sh").write_text("touch went")
    assert check_servers(folder) is not None
    async with open_room() as room:
        assert room.tools == {}
    problem = "uses files that were not trusted with it" if how == "created" else "has changed since it was trusted"
    assert problem in room.shown[0]
    assert not (folder / "went").exists()
    told("trust", "--yes")
    async with open_room() as room:
        assert await room.echo("hello") == "echo: hello"


async def test_a_project_replaces_no_server_of_the_bundle_and_the_editor(
    open_room: Any, told: Any, project_file: Path
) -> None:
    told("trust", "--yes")
    async with open_room({"one": scripted("pid")}) as room:
        assert (await room.echo("hello")).isdigit()
    async with open_room(editor={"one": scripted("pid"), "bad": {"command": 7}}) as room:
        assert (await room.echo("hello")).isdigit()
    assert room.shown == ["the editor's MCP server bad: command: Input should be a valid string"]


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": 7}', '{"servers": {}}', "[" * 100_000])
async def test_a_broken_file_is_a_line_for_the_person(
    open_room: Any, project_file: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    project_file.write_text(text)
    assert check_servers(project_file.parent, checks=True) is not None
    async with open_room() as room:
        assert room.tools == {}
    [shown] = room.shown
    assert shown.startswith(f"the MCP servers of this project are left out: {project_file} is not JSON like")


async def test_of_a_file_with_mistakes_the_other_servers_run(
    open_room: Any, project_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    sse = {"type": "sse", "url": "https://old.example/sse"}
    project_file.write_text(json.dumps({"mcpServers": {"one": scripted(), "old": sse, "none": 7, "two": {}}}))
    async with open_room() as room:
        assert await room.echo("hello") == "echo: hello"
    assert [each.partition("the MCP server ")[2] for each in room.shown] == [
        "old: type: the transport sse was replaced in 2025; use the server's streamable HTTP address",
        "none: is no mapping",
        "two: needs either a command or a url",
    ]


def test_a_name_without_a_server_is_not_answered_with_the_mistakes_of_others(told: Any, project_file: Path) -> None:
    project_file.write_text(json.dumps({"mcpServers": {"one": scripted(), "none": 7, "two": {}}}))
    told("trust", "--yes")
    assert "no MCP server is called 'three'. There are one." in told("mcp", "test", "three", code=exits.NOT_FOUND)
    problem = told("mcp", "test", "two", code=exits.FAILED)
    assert problem == f"amplifier: {project_file}: the MCP server two: needs either a command or a url\n"


def test_the_file_is_found_upward_within_the_checkout(folder: Path, project_file: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    assert find_file(inner) == project_file
    (folder / "a" / ".git").mkdir()
    assert find_file(inner) is None


def test_what_a_person_is_asked_to_trust_names_the_commands_and_addresses(folder: Path) -> None:
    far = {"type": "http", "url": "https://user:pass@far.example/mcp?key=ghp_abcdefghij1234567890"}
    near = {"command": "npx", "args": ["-y", "near"], "env": {"TOKEN": "ghp_abcdefghij1234567890"}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"far": far, "near": near}}))
    error = check_servers(folder)
    assert error is not None
    assert error.content is not None
    assert error.content.lines[1:3] == [
        ("MCP server", "near runs: npx -y near"),
        ("with", 'near env: {"TOKEN": "[REDACTED]"}'),
    ]
    assert "ghp_" not in str(error.content.lines)
