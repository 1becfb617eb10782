"""MCP servers of the editor: mounted in its sessions, never stored, and refused by name where they are none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: plain}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: "^say (?P<text>.+)"}, call: {tool: mcp__notes__echo, input: {text: "{text}"}}}
        - {when: {tool: mcp__notes__echo}, say: "{result}"}
      otherwise: {say: "You said: {prompt}"}
%s---
You are plain.
"""
PATIENT = "tools: [{module: tool-mcp, config: {start_timeout: 600}}]\n"
SERVER = Path(__file__).parents[2] / "amplifier-tool-mcp" / "tests" / "scripted.py"
TOKEN = "swordfish-4711-very-secret"
NOTES = {
    "name": "notes",
    "command": sys.executable,
    "args": ["-S", "-E", str(SERVER)],
    "env": [{"name": "NOTES_TOKEN", "value": TOKEN}],
}


def test_what_can_be_mounted_is_announced(editors: Any) -> None:
    capabilities = editors.start().call("initialize", protocolVersion=1)["agentCapabilities"]
    assert capabilities["mcpCapabilities"] == {"http": True, "sse": False}


def test_the_servers_of_an_editor_are_mounted_in_its_sessions_and_never_stored(editors: Any, make: Any) -> None:
    folder, servers = make(BUNDLE % PATIENT), [NOTES]
    editor = editors.start()
    session = editor.call("session/new", cwd=str(folder), mcpServers=servers)["sessionId"]
    editor.prompt(session, "say progress")
    assert editor.text_of(session) == "echo: progress"
    [question] = editor.questions
    assert "tools of servers are asked for" in json.dumps(question)
    assert "1 of 2: part 1" in json.dumps(editor.updates_of(session, "tool_call_update"))
    editor.prompt(session, "say environment")
    assert '"NOTES_TOKEN": "[REDACTED]"' in editor.text_of(session)
    fork = editor.call("session/fork", cwd=str(folder), sessionId=session, mcpServers=[])["sessionId"]
    editor.prompt(fork, "say hello")
    assert "unknown tool 'mcp__notes__echo'" in editor.text_of(fork)
    assert editor.close() == 0
    again = editors.start()
    again.call("session/resume", cwd=str(folder), sessionId=session, mcpServers=servers)
    again.prompt(session, "say hello")
    assert again.text_of(session) == "echo: hello"
    assert again.close() == 0
    for file in editors.home.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()


def test_a_bundle_without_the_module_has_it_and_a_server_that_does_not_start_costs_its_tools_alone(
    editors: Any, make: Any
) -> None:
    folder = make(BUNDLE % "")
    server = {"name": "gone", "command": "/no/such/program", "args": [], "env": []}
    editor = editors.start()
    session = editor.call("session/new", cwd=str(folder), mcpServers=[server])["sessionId"]
    editor.prompt(session, "hello")
    assert editor.text_of(session) == "You said: hello"
    thoughts = json.dumps(editor.updates_of(session, "agent_thought_chunk"))
    assert "the MCP server 'gone' is missing: " in thoughts


def test_what_is_no_server_is_refused_by_its_name(editors: Any, make: Any) -> None:
    folder, editor = make(BUNDLE % ""), editors.start()
    one = {"name": "one", "command": "run", "args": [], "env": []}
    for servers, problem in (
        ([one, one], "mcpServers: one: is given twice"),
        ([{"type": "http", "name": "one", "headers": []}], "mcpServers: one: has no url"),
        ([{"name": "one", "args": [], "env": []}], "mcpServers: one: has no command"),
    ):
        error = editor.refusal("session/new", valid=False, cwd=str(folder), mcpServers=servers)
        assert (error["code"], error["message"]) == (-32602, problem)
