"""What calls bring: texts, images, errors, progress; and what a call needs to be asked for."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import CommandFailed
from amplifier_core.permissions import Layer, PermissionGate, Policy, parse_rule
from amplifier_core.permissions.calls import Call
from amplifier_core.prompt_commands import collect_commands, expand_command
from amplifier_foundation.settings import write_setting
from amplifier_tool_mcp import hub
from amplifier_tool_mcp.config import ServerConfig
from amplifier_tool_mcp.errors import EFFECT, ServerError

from .conftest import Room, scripted


@pytest.fixture
def own() -> Any:
    """Write a server into the person's own settings, and return it."""

    def write(**more: Any) -> dict[str, Any]:
        server = scripted(**more)
        write_setting("user", ("overrides", "tool-mcp", "config", "servers", "one"), server)
        return server

    return write


async def test_the_tools_of_a_server_are_mounted_under_its_name(open_room: Any) -> None:
    async with open_room({"one": scripted()}) as room:
        tool = room.tools["mcp__one__echo"]
        assert (tool.name, tool.description) == ("mcp__one__echo", "Repeats a text.")
        assert tool.input_schema == {"type": "object", "properties": {"text": {"type": "string"}}}
        assert await room.echo("hello") == "echo: hello"
    assert room.shown == []


async def test_without_a_server_nothing_is_mounted_and_no_sdk_imported(open_room: Any) -> None:
    code = """
import asyncio, sys
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_tool_mcp import mount
before = set(sys.modules)
assert asyncio.run(mount(ModuleCoordinator(session_id="s"), {})) is None
assert not {"mcp", "pydantic", "amplifier_tool_mcp.config"} & (set(sys.modules) - before), set(sys.modules) - before
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd="/")
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("text", "success", "output"),
    [
        ("structure", True, '{"answer": 42}'),
        ("fail", False, "that did not work"),
        ("refuse", False, "the MCP server 'one' refuses the call: no [31mway"),
        ("junk", False, "the MCP server 'one' answers against the protocol (ValidationError). " + EFFECT),
        ("noise", True, "echo: noise"),
    ],
)
async def test_whatever_a_server_answers_is_a_result(open_room: Any, text: str, success: bool, output: str) -> None:
    async with open_room({"one": scripted()}) as room:
        result = await room.call("mcp__one__echo", text=text)
        assert (result.success, result.output) == (success, output)
        assert await room.echo("next") == "echo: next"


async def test_images_are_blocks_and_what_no_model_sees_is_named(open_room: Any) -> None:
    async with open_room({"one": scripted()}) as room:
        result = await room.call("mcp__one__echo", text="image")
    text, image = result.content
    damaged = [f"[image: image/png, {count} characters, damaged, left out]" for count in (40, 3)]
    assert text.text == "see\n" + "\n".join(damaged) + (
        "\n[image: image/tiff, 4 characters of base64, left out]\n[resource: note://1, one]"
    )
    assert image.source["media_type"] == "image/png"
    assert len(image.source["data"]) == 96


async def test_a_long_result_is_cut_with_a_note(open_room: Any) -> None:
    async with open_room({"one": scripted("huge")}, max_result_chars=100) as room:
        said = await room.echo("")
    assert said == "x" * 100 + "\n[The result is cut here: 1999900 of its 2000000 characters are missing.]"


async def test_progress_is_an_event_of_its_call(open_room: Any) -> None:
    async with open_room({"one": scripted()}) as room:
        heard = []

        async def hear(event: str, data: dict[str, Any]) -> None:
            heard.append((data["tool_name"], data["tool_call_id"], data["text"]))

        room.coordinator.hooks.register("tool:progress", hear)
        room.coordinator.register_capability("tool.call", lambda: {"tool_call_id": "c1"})
        await room.echo("progress")
    assert heard[-1] == ("mcp__one__echo", "c1", "2 of 2: part 2\n")


async def test_a_cancelled_call_cancels_the_request(open_room: Any, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    async with open_room({"one": scripted("kind", str(heard))}) as room:
        call = asyncio.create_task(room.echo("hang"))
        while not call.done():
            await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.wait({call}, timeout=0.1)
        assert call.cancelled()
        assert await room.echo("next") == "echo: next"
        assert heard.read_text() == "cancelled\n"


async def test_a_call_ends_at_its_limit_and_the_server_goes_on(open_room: Any) -> None:
    async with open_room({"one": scripted(timeout=50)}) as room:
        pid = await room.echo("pid")
        tool = room.tools["mcp__one__echo"]
        assert tool._seconds == 50
        tool._seconds = 0.2
        assert await room.echo("hang") == "the MCP server 'one' has not answered for 0.2 seconds"
        tool._seconds = 50
        assert await room.echo("pid") == pid


async def test_a_server_has_a_few_harmless_variables_and_its_own(
    open_room: Any, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-1")
    monkeypatch.setenv("NOTES", "/notes")
    monkeypatch.setenv("AMPLIFIER_SESSION", str(os.getpid()))
    env = {"TOKEN": "${NOTES}:${MISSING:-none}", "EMPTY": ""}
    async with open_room({"one": scripted(env=env)}) as room:
        given = json.loads(await room.echo("environment"))
        assert await room.echo("folder") == str(folder)
    assert (given["TOKEN"], given["EMPTY"], given["AMPLIFIER_SESSION"]) == ("/notes:none", "", str(os.getpid()))
    harmless = {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
    assert set(given) <= harmless | {"TOKEN", "EMPTY", "AMPLIFIER_SESSION"}


async def test_a_variable_that_is_nowhere_costs_its_server_alone(open_room: Any) -> None:
    servers = {"one": scripted(), "two": scripted(env={"TOKEN": "${NO_SUCH_TOKEN}"})}
    async with open_room(servers) as room:
        assert [name for name in room.tools if name.startswith("mcp__")] == ["mcp__one__echo"]
    assert room.shown == [
        "the MCP server 'two' is missing: there is no key NO_SUCH_TOKEN: it is neither in the environment nor kept. "
        "Keep it with: amplifier auth login NO_SUCH_TOKEN"
    ]


async def test_resources_are_listed_and_read_by_one_tool(open_room: Any) -> None:
    async with open_room({"one": scripted(), "two": scripted()}) as room:
        listed = await room.call("mcp_resources", server="two")
        assert listed.output == "two:\nnote://1  one\nnote://{number}  any"
        assert (await room.call("mcp_resources", server="one", uri="note://7")).output == "the note"
        assert (await room.call("mcp_resources")).output.count("note://1") == 2
        error = (await room.call("mcp_resources", uri="note://1")).error
        assert error == {"message": "server: name one of one, two", "type": "InvalidInput"}
        assert room.tools["mcp_resources"].input_schema["properties"]["server"]["enum"] == ["one", "two"]


async def test_prompts_are_slash_commands(open_room: Any) -> None:
    async with open_room({"one": scripted()}) as room:
        commands = await room.commands()
        assert sorted(commands) == ["mcp:one:summarise", "mcp:one:translate"]
        one = commands["mcp:one:summarise"]
        assert (one["description"], one["hint"]) == ("Sums up.", "topic=… [tone=…]")
        assert (
            await one["expand"]("topic='two words' tone=dry") == '["summarise", {"topic": "two words", "tone": "dry"}]'
        )
        assert await commands["mcp:one:translate"]["expand"]("all of this") == '["translate", {"text": "all of this"}]'
        for argument, problem in (
            ("", "the prompt 'summarise' needs topic=…"),
            ("topic=1 no", "'no' is no argument of the prompt 'summarise'; it takes topic=…, tone=…"),
            ("'", "the arguments of 'summarise' cannot be read: No closing quotation"),
        ):
            with pytest.raises(ServerError, match="^" + problem.replace("(", r"\(")):
                await one["expand"](argument)


async def test_a_prompt_of_a_server_that_is_not_ready_waits_for_it(
    open_room: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "COMMANDS_WITHIN", 0)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with open_room({"one": scripted("gated", str(gate))}, begin=False) as room:
        commands = await collect_commands(room.coordinator)
        assert ([*commands.offered], commands.problems) == (["mcp:one:"], [])
        wanted, unknown = commands.find("/mcp:one:summarise  topic=cats"), commands.find("/mcp:one:sum")
        assert wanted is not None and unknown is not None
        expanding = asyncio.create_task(expand_command(*wanted))
        await asyncio.to_thread(gate.write_text, "go")
        assert await expanding == '["summarise", {"topic": "cats"}]'
        problem = (
            "/mcp:one:sum of tool-mcp failed: the MCP server 'one' has no prompt 'sum'; it has summarise, translate"
        )
        with pytest.raises(CommandFailed, match=f"^{problem}$"):
            await expand_command(*unknown)
        assert sorted((await collect_commands(room.coordinator)).offered) == ["mcp:one:summarise", "mcp:one:translate"]


async def test_the_text_of_a_prompt_is_a_stranger_s(open_room: Any, folder: Path) -> None:
    async with open_room({"one": scripted()}) as room:
        gate = room.coordinator.permissions = PermissionGate(Policy(), folder)
        await (await room.commands())["mcp:one:summarise"]["expand"]("topic=1")
        assert gate.untrusted == "it has read a prompt of the MCP server one"


# permissions


def decide(room: Room, *rules: str, untrusted: str = "", name: str = "mcp__one__echo") -> tuple[str, str]:
    layer = Layer("user settings", [parse_rule("allow", each) for each in rules], is_own=True)
    gate = PermissionGate(Policy([layer]), ".")
    gate.untrusted = untrusted
    tool = room.tools[name]
    decision = gate.decide(name, {"text": "x"}, tool.accesses)
    return decision.effect, decision.reason


async def test_a_tool_is_asked_for_and_an_answer_for_good_holds_for_what_it_says_now(open_room: Any) -> None:
    async with open_room({"one": scripted()}) as room:
        tool = room.tools["mcp__one__echo"]
        assert decide(room) == ("ask", "tools of servers are asked for")
        assert decide(room, "mcp__one__*") == ("allow", "the rule mcp__one__*")
        from amplifier_core.permissions.rules import narrowest_rule

        rule = narrowest_rule(Call.of(tool.name, {"text": "x"}, ".", tool.accesses))
        assert rule == f"mcp__one__echo({tool.listed.fingerprint})"
        assert decide(room, rule)[0] == "allow"
    async with open_room({"one": scripted("words")}) as other:
        assert decide(other, rule)[0] == "ask"


async def test_hints_and_results_of_a_stranger_count_for_nothing(open_room: Any, own: Any) -> None:
    async with open_room({"one": scripted()}) as room:  # it says that its tool reads only
        assert room.tools["mcp__one__echo"].untrusted_results is True
        assert room.tools["mcp_resources"].untrusted_results is True
        assert decide(room, untrusted="it has read a page")[0] == "ask"
    async with open_room({"one": own(trusted=True)}) as room:
        assert room.tools["mcp__one__echo"].untrusted_results is False
        assert room.tools["mcp_resources"].untrusted_results is False
        assert decide(room, untrusted="it has read a page")[0] == "allow"


@pytest.mark.parametrize("change", [{"args": ["-S", "elsewhere.py"]}, {"env": {"PYTHONPATH": "/evil"}}])
async def test_only_the_person_s_own_settings_trust_a_server_and_only_as_they_name_it(
    open_room: Any, own: Any, change: dict[str, Any]
) -> None:
    from amplifier_tool_mcp.config import read_config
    from amplifier_tool_mcp.servers import find_servers

    changed = {**own(trusted=True), **change}
    servers, _ = find_servers(read_config({"servers": {"one": changed, "two": changed}}), Path(), {})
    assert [each.trusted for each in servers] == [False, False]
    async with open_room({"two": scripted(trusted=True)}) as room:
        assert room.tools["mcp__two__echo"].untrusted_results is True


async def test_a_server_with_a_kept_key_is_trusted_all_the_same(own: Any) -> None:
    from amplifier_tool_mcp.config import read_config
    from amplifier_tool_mcp.servers import find_servers

    given = own(trusted=True, env={"TOKEN": "secret://TOKEN", "MODE": "kind"})
    for env, is_trusted in (({"TOKEN": "the key", "MODE": "kind"}, True), ({"TOKEN": "the key", "MODE": "x"}, False)):
        servers, _ = find_servers(read_config({"servers": {"one": {**given, "env": env}}}), Path(), {})
        assert [each.trusted for each in servers] == [is_trusted]


def test_a_server_says_no_more_in_texts_than_it_runs() -> None:
    config = ServerConfig(command="run", env={"TOKEN": "sk-very-secret-1"})
    from amplifier_tool_mcp.servers import Server

    assert "secret" not in repr(Server("one", config, "configuration", Path()))
