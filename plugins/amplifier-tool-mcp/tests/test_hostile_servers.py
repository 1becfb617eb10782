"""Servers that end, hang, lie, flood and change: each costs its own calls, and the others go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types import JSONRPCNotification, JSONRPCResponse

from amplifier_tool_mcp import connection, sieve, stdio
from amplifier_tool_mcp.errors import EFFECT
from amplifier_tool_mcp.names import make_slug, make_tool_name

from .conftest import scripted

FULL = "the MCP server 'one' refuses the call: the disk is full"


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        ("exits", "it ended with exit code 3: the key is wrong"),
        ("circle", "its list of tools leads in a circle"),
        ("endless", "its list of tools has more than 100 pages"),
        ("lists-junk", "it answers against the protocol: tools: Input should be a valid list"),
        ("dated", "it speaks the protocol 1999-01-01, which is not known"),
        ("flood", "it prints text where messages are expected"),
    ],
)
async def test_a_server_that_cannot_be_used_is_named_with_its_reason(open_room: Any, mode: str, problem: str) -> None:
    async with open_room({"one": scripted(), "bad": scripted(mode)}) as room:
        assert [name for name in room.tools if "bad" in name] == []
        assert await room.echo("hello") == "echo: hello"
    [shown] = room.shown
    assert shown.startswith("the MCP server 'bad' is missing: ")
    assert problem in shown


@pytest.mark.parametrize("begun", range(10))
def test_the_last_words_of_a_program_begin_with_a_word(begun: int) -> None:
    program = stdio.Program()
    program.hear(b"x" * begun + b" No module named 'mcp.server'." * 30)
    told, _, words = program.describe_end().partition(": … ")
    assert (told, words.split()[0] in {"No", "module", "named", "'mcp.server'."}) == ("it closed its output", True)


async def test_a_program_that_is_missing_is_named(open_room: Any) -> None:
    async with open_room({"bad": {"command": "no-such-program"}}) as room:
        pass
    assert room.shown == [
        "the MCP server 'bad' is missing: 'no-such-program' does not start: No such file or directory"
    ]


async def test_a_start_never_waits_longer_than_its_limit(open_room: Any) -> None:
    async with open_room({"bad": scripted("silent")}, start_timeout=0.2) as room:
        assert room.shown == ["the MCP server 'bad' is missing: it is not ready after 0.2 seconds"]


async def test_a_server_that_ignores_the_newest_protocol_is_there_in_the_first_turn(
    open_room: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "DISCOVERING", 0.2, raising=False)
    async with open_room({"one": scripted("modest")}, start_timeout=9.5) as room:  # the SDK waits 10
        assert await room.echo("hello") == "echo: hello"
    assert room.shown == []


@pytest.mark.parametrize("mode", ["json", "stderr", "asks"])
async def test_noise_does_no_harm(open_room: Any, mode: str) -> None:
    async with open_room({"one": scripted(mode)}) as room:
        assert [await room.echo(each) for each in "abc"] == ["echo: a", "echo: b", "echo: c"]


@pytest.mark.parametrize(
    ("method", "params", "most"),
    [
        ("notifications/message", {"level": "info", "data": "la"}, 0),
        ("notifications/resources/updated", {"uri": "note://1"}, 0),
        ("notifications/of_its_own", {}, 0),
        ("notifications/cancelled", {"requestId": "NUMBER"}, 0),
        ("notifications/tools/list_changed", {}, 0),
        ("notifications/subscriptions/acknowledged", {}, 1),
        ("notifications/progress", {"progressToken": "TOKEN", "progress": 1}, 1),
        ("notifications/progress", {"progressToken": "TOKEN", "progress": 1, "total": 1}, 1),
        ("notifications/progress", {"progressToken": "TOKEN"}, 0),
        ("notifications/progress", {"progressToken": "NUMBER", "progress": 1}, sieve.MOST_PROGRESS),
        ("notifications/progress", {"progressToken": None, "progress": 1}, 0),
    ],
)
async def test_few_notifications_of_a_flood_reach_the_sdk(
    open_room: Any,
    notified: list[str],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    params: dict[str, Any],
    most: int,
) -> None:
    monkeypatch.setattr(sieve, "PROGRESS_EVERY", 600.0)
    async with open_room({"one": scripted()}) as room:
        assert await room.echo("flood " + json.dumps([method, params])) == "echo: flood"
        assert notified == [method] * most


def test_the_first_and_the_last_progress_of_a_call_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve, "PROGRESS_EVERY", 600.0)
    sift = sieve.Sieve()
    read = []
    for part in (1, 2, 3, 3):
        for token in ("a", 1):
            params = {"progressToken": token, "progress": part, "total": 3}
            if sift.keeps(JSONRPCNotification(jsonrpc="2.0", method=sieve.PROGRESS, params=params)):
                read.append((token, part))
    assert read == [("a", 1), (1, 1), ("a", 3), (1, 3)]


async def test_odd_entries_of_lists_take_no_other_ones_away(open_room: Any) -> None:
    async with open_room({"one": scripted("odd")}) as room:
        assert [name for name in room.tools if name.startswith("mcp__")] == ["mcp__one__echo"]
        assert await room.echo("hello") == "echo: hello"
        assert list(await room.commands()) == ["mcp:one:translate"]
        assert "note://1" in (await room.call("mcp_resources")).output
    assert room.shown == [
        "the MCP server 'one': its tool 'text' is left out: inputSchema.type: Input should be 'object'",
        "the MCP server 'one': its tool '5' is left out: name: Input should be a valid string",
        "the MCP server 'one': its tool 'none' is left out: Input should be a valid dictionary or instance of Tool",
        "the MCP server 'one': its prompt 'summarise' is left out: arguments: Input should be a valid list",
    ]


def test_no_entry_is_at_fault_for_a_page_that_is_odd_itself() -> None:
    sift = sieve.Sieve()
    sift.version = "2025-06-18"
    page = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}], "nextCursor": 5}
    message = JSONRPCResponse(jsonrpc="2.0", id=1, result={**page})
    assert sift.keeps(message)
    assert (message.result, sift.left_out) == (page, [])


async def test_half_a_character_in_a_result_loses_that_character_alone(open_room: Any) -> None:
    async with open_room({"one": scripted(timeout=20)}) as room:
        assert await room.echo("half") == "cut here: ?"
        assert await room.echo("cut \ud83d there") == "echo: cut ? there"


def test_a_deep_message_with_half_a_character_is_no_message() -> None:
    with pytest.raises(ValueError, match="recursion|Stack overflow"):  # as Python says it
        stdio.read_message(b'["\\ud83d",' + b"[" * 100_000)


@pytest.mark.parametrize("how", ["cut", "deep", "deeper", "number", "text", "null"])
async def test_an_answer_that_is_no_message_fails_its_call_at_once(open_room: Any, how: str) -> None:
    async with open_room({"one": scripted(timeout=60)}) as room:
        before = await room.echo("pid")
        result = await room.call("mcp__one__echo", text=f"broken {how}")
        assert (result.error["type"], result.error["message"]) == (
            "InvalidAnswer",
            f"the MCP server 'one' answers against the protocol (Failed to parse JSON response). {EFFECT}",
        )
        assert await room.echo("pid") == before


@pytest.mark.parametrize("mode", ["enormous", "line"])
async def test_a_message_without_an_end_loses_its_server_alone(
    open_room: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "LONGEST_MESSAGE", 1 << 20)
    async with open_room({"one": scripted(), "bad": scripted(mode)}) as room:
        lost = await room.echo("", "bad")
        assert lost == (
            "the MCP server 'bad' was lost during the call: it sent a message of more than 1 MiB. "
            "The call may have had an effect"
        )
        assert await room.echo("hello") == "echo: hello"


async def test_a_server_that_dies_in_a_call_is_started_again(open_room: Any) -> None:
    async with open_room({"one": scripted()}) as room:
        before = await room.echo("pid")
        assert before.isdigit()
        result = await room.call("mcp__one__echo", text="die")
        assert result.error["type"] == "ServerLost"
        assert "it was ended by signal 9. The call may have had an effect" in result.error["message"]
        after = await room.echo("pid")
        assert after.isdigit()
        assert after != before


async def test_an_error_of_a_server_is_no_loss_whatever_its_code(open_room: Any) -> None:
    async with open_room({"one": scripted()}) as room:
        before = await room.echo("pid")
        said = await asyncio.gather(*map(room.echo, ("full", "hello", "full", "pid")))
        assert said == [FULL, "echo: hello", FULL, before]


async def test_a_server_that_always_dies_is_started_ever_less_often(
    open_room: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 30.0)
    async with open_room({"one": scripted("exits")}) as room:
        pass
    async with open_room({"one": scripted("dies")}) as room:
        assert "was lost during the call" in await room.echo("")
        tool = room.tools["mcp__one__echo"]
        tool._seconds = 0.1
        async with asyncio.timeout(60):
            while not tool._connection.problem:
                await asyncio.sleep(0.01)
        assert await room.echo("") == "the MCP server 'one' is not connected: it was ended by signal 9"


async def test_a_stopped_server_is_started_again_after_a_call_that_took_too_long(
    open_room: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWERS_WITHIN", 0.2)
    async with open_room({"one": scripted(timeout=5)}) as room:
        pid = int(await room.echo("pid"))
        os.kill(pid, signal.SIGSTOP)
        room.tools["mcp__one__echo"]._seconds = 0.2
        assert await room.echo("pid") == "the MCP server 'one' has not answered for 0.2 seconds"
        room.tools["mcp__one__echo"]._seconds = 60
        other = await room.echo("pid")
        assert other.isdigit()
        assert other != str(pid)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("mode", ["stubborn", "silent", "kind"])
async def test_no_server_outlives_its_session(open_room: Any, mode: str) -> None:
    async with open_room({"one": scripted(mode)}, start_timeout=0.5 if mode == "silent" else 60) as room:
        processes = [int(each) for each in await children()]
        if mode == "stubborn":
            os.kill(int(await room.echo("pid")), signal.SIGSTOP)
    assert processes
    assert not set(processes) & {int(each) for each in await children()}


async def test_what_a_server_starts_ends_with_it(open_room: Any, tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    async with open_room({"one": scripted("parent", str(noted))}):
        pid = int(noted.read_text())
    async with asyncio.timeout(60):
        while Path(f"/proc/{pid}/stat").exists() and ") Z " not in Path(f"/proc/{pid}/stat").read_text():
            await asyncio.sleep(0.01)


async def children() -> list[str]:
    """Return the processes below this one that run a scripted server."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = (each / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and b"scripted.py" in (each / "cmdline").read_bytes():
                found.append(each.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("changing", "the MCP server 'one' has changed the description of its tool 'echo' since this session began"),
        ("vanishing", "the MCP server 'one' has the tool 'echo' no longer"),
    ],
)
async def test_a_tool_that_changes_after_it_was_listed_is_refused(open_room: Any, mode: str, why: str) -> None:
    async with open_room({"one": scripted(mode)}) as room:
        assert await room.echo("before") == "echo: before"
        tool = room.tools["mcp__one__echo"]
        async with asyncio.timeout(60):
            while not tool.refusal:
                await asyncio.sleep(0.01)
        result = await room.call("mcp__one__echo", text="after")
        assert result.error["type"] == "ToolChanged"
        assert result.error["message"].startswith(why)
        assert tool.description == "Repeats a text."


async def test_a_call_that_waits_for_a_new_start_does_not_reach_a_changed_tool(open_room: Any, tmp_path: Path) -> None:
    async with open_room({"one": scripted("restarted", str(tmp_path / "starts"))}) as room:
        assert (await room.call("mcp__one__echo", text="die")).error["type"] == "ServerLost"
        result = await room.call("mcp__one__echo", text="my files")
        assert result.error is not None, result.output
        assert result.error["type"] == "ToolChanged"
        assert "has changed the description of its tool 'echo'" in result.error["message"]


async def test_a_script_that_changes_in_a_session_is_not_started_again(open_room: Any, folder: Path) -> None:
    script = folder / "server.py"
    script.write_bytes(Path(scripted()["args"][2]).read_bytes())
    async with open_room({"one": {"command": sys.executable, "args": ["-S", "-E", "server.py"]}}) as room:
        script.write_text("raise SystemExit(open('ran', 'w'))")
        assert (await room.call("mcp__one__echo", text="die")).error["type"] == "ServerLost"
        result = await room.call("mcp__one__echo", text="hello")
        assert f"{script} has changed since the session began. Begin a new session" in str(result.error)
    assert not (folder / "ran").exists()


async def test_a_server_that_lists_ever_other_tools_has_some_of_them(open_room: Any) -> None:
    async with open_room({"one": scripted("growing")}) as room:
        await room.call("mcp__one__echo0_0", text="")
        async with asyncio.timeout(60):
            while not room.tools["mcp__one__echo0_0"].refusal:
                await asyncio.sleep(0.01)
        assert len([name for name in room.tools if name.startswith("mcp__one__")]) == 256
    assert "its tool 'echo1_56' is left out: it had 256 others in this session" in room.shown[0]


async def test_very_many_problems_of_a_server_are_told_in_few_lines(open_room: Any) -> None:
    async with open_room({"one": scripted("nameless")}) as room:
        pass
    assert len(room.shown) == 6
    assert room.shown[-1] == "the MCP server 'one': 195 more problems like these"


async def test_a_fingerprint_is_too_long_to_find_two_descriptions_with_one(open_room: Any) -> None:
    async with open_room({"one": scripted()}) as room:
        assert len(room.tools["mcp__one__echo"].listed.fingerprint) == 32


async def test_a_tool_that_comes_later_is_mounted_also_in_the_newest_protocol(open_room: Any) -> None:
    server = {"command": sys.executable, "args": [str(Path(__file__).with_name("modern.py"))]}
    async with open_room({"one": server}) as room:
        assert (await room.call("mcp__one__grow")).output == "grown"
        async with asyncio.timeout(60):
            while "mcp__one__late" not in room.tools:
                await asyncio.sleep(0.01)
        assert (await room.call("mcp__one__late")).output == "here"


async def test_patterns_of_a_server_are_never_run(open_room: Any) -> None:
    async with open_room({"one": scripted("patterns")}) as room:
        assert await room.echo("") == '{"text": "' + "a" * 40 + '!"}'


async def test_names_are_what_providers_take_and_no_two_are_equal(open_room: Any) -> None:
    async with open_room({"one": scripted("names"), "a__b": scripted(), "a b": scripted()}) as room:
        names = [name for name in room.tools if name.startswith("mcp__")]
    assert sorted(names) == sorted(
        [
            "mcp__one__a_b",
            "mcp__one__a_b_" + digest("a_b"),
            "mcp__one__a_b_" + digest("a b"),
            "mcp__one____31mred__0m",
            "mcp__one__" + "x" * 45 + "_" + digest("x" * 200),
            "mcp__one___n_",
            "mcp__one________etc",
            "mcp__one__tool__with__parts",
            "mcp__a_b__echo",
            "mcp__a_b_" + digest("a b") + "__echo",
        ]
    )
    assert room.shown == [
        "the MCP server 'one': its tool '' is left out: its name is empty, or too long",
        "the MCP server 'one': its prompt 'two words' is left out: its name cannot be typed",
    ]


def digest(name: str) -> str:
    from hashlib import sha256

    return sha256(name.encode()).hexdigest()[:8]


def test_a_name_is_the_same_in_each_session() -> None:
    for _ in range(2):
        taken: dict[str, str] = {}
        assert make_tool_name(make_slug("Döcs / v2", {}), "søk", taken) == "mcp__D_cs_v2__s_k"


async def test_descriptions_have_no_invisible_characters_and_an_end(open_room: Any) -> None:
    async with open_room({"one": scripted("words")}) as room:
        said = room.tools["mcp__one__echo"].description
        text = room.tools["mcp__one__echo"].input_schema["properties"]["text"]
    assert text == {"anyOf": [{"type": "string", "description": "[2Jhidden"}]}
    assert said.startswith("[2Jclear me!!!")
    assert len(said) == 4000


async def test_schemas_that_no_provider_takes_are_left_out(open_room: Any) -> None:
    async with open_room({"one": scripted("schemas")}) as room:
        assert sorted(name[-2:] for name in room.tools if name.startswith("mcp__")) == ["t0", "t2"]
        assert room.tools["mcp__one__t0"].input_schema == {"type": "object", "properties": {}}
    assert room.shown == [
        "the MCP server 'one': its tool 't1' is left out: its description and schema have more than 100000 characters"
    ]


async def test_of_very_many_tools_some_are_used(open_room: Any) -> None:
    async with open_room({"one": scripted("many")}) as room:
        assert len([name for name in room.tools if name.startswith("mcp__")]) == 256
    assert room.shown == ["the MCP server 'one': it lists more than 256 tools; the others are left out"]


async def test_the_person_chooses_among_the_tools(open_room: Any) -> None:
    async with open_room({"one": scripted("many", tools=["echo7", "echo99*"])}) as room:
        assert [name for name in room.tools if name != "mcp_resources"] == ["mcp__one__echo7", "mcp__one__echo99"]
