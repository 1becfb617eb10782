"""Servers that others wrote, from npm and PyPI, over stdio and streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_tool_mcp import connection

from .conftest import PATIENCE, scripted

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "6"))


@asynccontextmanager
async def serve_http(program: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run the npm server over HTTP on a free port, and yield its address once it listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        "node",
        program,
        "streamableHttp",
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while b"listening" not in (await process.stderr.readline()).lower():
                assert process.returncode is None
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def use_everything(room: Any) -> None:
    """Have a real server do everything that a session asks of one."""
    events = []

    async def hear(event: str, data: dict[str, Any]) -> None:
        events.append(data["text"])

    room.coordinator.hooks.register("tool:progress", hear)
    assert (await room.call("mcp__all__echo", message="hi")).output == "Echo: hi"
    assert (await room.call("mcp__all__get-sum", a=2, b=3)).output == "The sum of 2 and 3 is 5."
    refused = await room.call("mcp__all__echo")
    assert not refused.success
    assert "Invalid" in refused.output
    blocks = (await room.call("mcp__all__get-tiny-image")).content
    assert [each.type for each in blocks] == ["text", "image"]
    structured = await room.call("mcp__all__get-structured-content", location="New York")
    assert json.loads(structured.output)["conditions"] == "Cloudy"
    done = await room.call("mcp__all__trigger-long-running-operation", duration=0.2, steps=4)
    assert "completed" in done.output
    assert events[-1] == "4 of 4\n"
    listed = (await room.call("mcp_resources", server="all")).output
    uri = next(line.split()[0] for line in listed.splitlines() if line.startswith("demo://"))
    assert (await room.call("mcp_resources", server="all", uri=uri)).success
    commands = await room.commands()
    assert "Paris" in await commands["mcp:all:args-prompt"]["expand"]("city=Paris")


async def test_the_server_of_npm_over_stdio(open_room: Any, everything: str) -> None:
    async with open_room({"all": {"command": "node", "args": [everything, "stdio"]}}) as room:
        await use_everything(room)
    assert room.shown == []


async def test_the_server_of_npm_over_http(open_room: Any, everything: str) -> None:
    async with serve_http(everything) as (url, _), open_room({"all": {"type": "http", "url": url}}) as room:
        await use_everything(room)
    assert room.shown == []


async def test_the_server_of_pypi(open_room: Any, clock: dict[str, Any]) -> None:
    async with open_room({"clock": clock}) as room:
        told = await room.call(
            "mcp__clock__convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert json.loads(told.output)["target"]["datetime"].endswith("T21:00:00+09:00")
        wrong = await room.call("mcp__clock__get_current_time", timezone="Nowhere/Else")
        assert not wrong.success
        assert "Invalid timezone" in wrong.output
    assert room.shown == []


async def test_a_remote_server_that_is_away_costs_its_own_calls_and_comes_back(
    open_room: Any, everything: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWERS_WITHIN", 0.5)
    async with serve_http(everything) as (url, process):
        servers = {"all": {"url": url, "timeout": 20}, "one": scripted()}
        async with open_room(servers) as room:
            assert (await room.call("mcp__all__echo", message="hi")).success
            process.send_signal(signal.SIGSTOP)
            room.tools["mcp__all__echo"]._seconds = 0.5
            assert not (await room.call("mcp__all__echo", message="hi")).success
            assert await room.echo("hello") == "echo: hello"
            process.send_signal(signal.SIGCONT)
            room.tools["mcp__all__echo"]._seconds = PATIENCE
            await answers_again(room, "mcp__all__echo", message="hi")
            process.kill()
            await process.wait()
            assert not (await room.call("mcp__all__echo", message="hi")).success
            assert await room.echo("hello") == "echo: hello"


async def answers_again(room: Any, tool: str, **arguments: Any) -> None:
    """Call a tool until its server is back."""
    async with asyncio.timeout(PATIENCE):
        while not (await room.call(tool, **arguments)).success:
            await asyncio.sleep(0.01)


def processes_of(program: str) -> list[int]:
    """Return the processes below this one that run a program."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = (each / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and program.encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("kind", ["scripted", "npm"])
async def test_servers_killed_and_stopped_at_random_moments_hold_up_nobody(
    open_room: Any, everything: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(connection, "ANSWERS_WITHIN", 0.2)
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(connection, "WHOLE", 0.0)  # each loss is a first one
    monkeypatch.setattr(connection, "CONNECTING", 15.0)  # a server may be stopped while it starts
    chance = random.Random(7)
    npm = {"command": "node", "args": [everything, "stdio"]}
    servers = {"one": scripted() if kind == "scripted" else npm, "other": scripted("kind", "other")}
    given = {"text": "hi", "message": "hi"}
    program = "scripted.py" if kind == "scripted" else "server-everything"
    async with open_room(servers) as room:
        room.tools["mcp__one__echo"]._seconds = 2.0  # a stopped server holds up its calls for so long
        for _ in range(KILLS):
            await answers_again(room, "mcp__one__echo", **given)
            calls = [asyncio.create_task(room.call("mcp__one__echo", **given)) for _ in range(5)]
            for _ in range(chance.randrange(200)):
                await asyncio.sleep(0)
            blow = chance.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
            for pid in processes_of(program):
                if b"other" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, blow)
            if chance.random() < 0.3:
                calls[0].cancel()
            async with asyncio.timeout(PATIENCE):
                ended = await asyncio.gather(*calls, return_exceptions=True)
            assert [each for each in ended if isinstance(each, Exception)] == []
            assert (await room.call("mcp__other__echo", text="hi")).output == "echo: hi"
        await answers_again(room, "mcp__one__echo", **given)
    assert processes_of("scripted.py") == processes_of("server-everything") == []
