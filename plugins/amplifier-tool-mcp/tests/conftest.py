"""Rooms with MCP servers, and the servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_types import JSONRPCNotification

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.models import ToolResult
from amplifier_tool_mcp import mount
from amplifier_tool_mcp.sieve import Sieve
from tests.programs import install_from_npm, install_from_pypi, require

HERE = Path(__file__).parent
SCRIPTED = str(HERE / "scripted.py")
PATIENCE = 60.0


def scripted(*arguments: str, **more: Any) -> dict[str, Any]:
    """Return the configuration of a scripted server."""
    return {"command": sys.executable, "args": ["-S", "-E", SCRIPTED, *arguments], **more}


class Display:
    """Keeps what is shown to the person."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        self.shown.append(message)


class Room:
    """A coordinator with `tool-mcp`, as in a session that has begun."""

    def __init__(self, coordinator: ModuleCoordinator, display: Display) -> None:
        self.coordinator = coordinator
        self.shown = display.shown
        self.events: list[dict[str, Any]] = []

    @property
    def tools(self) -> dict[str, Any]:
        tools: dict[str, Any] = self.coordinator.get("tools")
        return tools

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        result: ToolResult = await self.tools[name].execute(arguments)
        return result

    async def echo(self, text: str, server: str = "one") -> str:
        result = await self.call(f"mcp__{server}__echo", text=text)
        return str(result.output)

    async def begin(self) -> None:
        await self.coordinator.hooks.emit("session:start", {})

    async def commands(self) -> dict[str, dict[str, Any]]:
        collected = await self.coordinator.collect_contributions("prompt.commands")
        return {each["name"]: each for listed in collected for each in listed}


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of the notifications that went on to the SDK."""
    heard: list[str] = []
    keeps = Sieve.keeps

    def note(self: Sieve, message: Any) -> bool:
        is_kept = keeps(self, message)
        if is_kept and isinstance(message, JSONRPCNotification):
            heard.append(message.method)
        return is_kept

    monkeypatch.setattr(Sieve, "keeps", note)
    return heard


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of its own, where nothing is trusted; sessions of other tests have left no mark."""
    folder = tmp_path / "home"
    monkeypatch.setenv("AMPLIFIER_HOME", str(folder))
    monkeypatch.setenv("AMPLIFIER_SESSION", "")  # to be as before, afterwards
    monkeypatch.delenv("AMPLIFIER_SESSION")
    monkeypatch.delenv("AMPLIFIER_TRUST", raising=False)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project without anything."""
    project = tmp_path / "project"
    project.mkdir()
    return project


@pytest.fixture
def open_room(folder: Path) -> Callable[..., Any]:
    """Open rooms with these servers; all of them have listed their tools, or failed."""

    @asynccontextmanager
    async def open_one(
        servers: dict[str, Any] | None = None,
        *,
        begin: bool = True,
        editor: dict[str, Any] | None = None,
        **config: Any,
    ) -> AsyncIterator[Room]:
        display = Display()
        coordinator = ModuleCoordinator(session_id="room", display_system=display)
        coordinator.register_capability("session.working_dir", str(folder))
        if editor is not None:
            coordinator.register_capability("mcp.servers", editor)
        given = {"start_timeout": PATIENCE, **config, **({"servers": servers} if servers else {})}
        async with asyncio.timeout(2 * PATIENCE):
            close = await mount(coordinator, given)
            room = Room(coordinator, display)
            try:
                if begin:
                    await room.begin()
                yield room
            finally:
                if close is not None:
                    await close()

    return open_one


@pytest.fixture(scope="session")
def everything(pytestconfig: pytest.Config) -> str:
    """The program of the npm package `@modelcontextprotocol/server-everything`, installed once."""
    require("node")
    folder = install_from_npm(pytestconfig.cache, "mcp-npm", HERE / "package.json")
    return str(folder / "node_modules/@modelcontextprotocol/server-everything/dist/index.js")


@pytest.fixture(scope="session")
def clock(pytestconfig: pytest.Config) -> dict[str, Any]:
    """The server of the PyPI package `mcp-server-time`, installed once beside the SDK of this environment."""
    folder = install_from_pypi(pytestconfig.cache, "mcp-pypi", HERE / "servers.txt")
    program = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
    return {"command": sys.executable, "args": program, "env": {"PYTHONPATH": str(folder)}}
