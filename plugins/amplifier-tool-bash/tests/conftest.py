"""A working folder with the tools mounted on it, and a folder outside that nobody may reach."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_tool_bash import mount
from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Bash = Callable[..., Awaitable[Any]]  # of a ToolResult, whose output may be anything
    Mount = Callable[..., Awaitable[ModuleCoordinator]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working folder."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder next to the working folder, with a file `secret`."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("outside\n")
    return tmp_path / "outside"


@pytest.fixture
def fake_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of bubblewrap that confines nothing."""
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text('#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    return fake


@pytest.fixture
async def mount_tools(work: Path) -> AsyncIterator[Mount]:
    """Mount the tools with a configuration; return their coordinator. Its end stops what runs."""
    mounted: list[ModuleCoordinator] = []

    async def mount_tools(**config: Any) -> ModuleCoordinator:
        coordinator = ModuleCoordinator(session_id="test")
        coordinator.register_capability("session.working_dir", str(work))
        await mount(coordinator, config)
        mounted.append(coordinator)
        return coordinator

    yield mount_tools
    for coordinator in mounted:
        await coordinator.cleanup()


@pytest.fixture
async def coordinator(mount_tools: Mount) -> ModuleCoordinator:
    """A coordinator with the tools in bubblewrap."""
    require("bwrap")
    return await mount_tools(sandbox="bubblewrap", grace=0.2, max_output_chars=10_000)


@pytest.fixture
def bash(coordinator: ModuleCoordinator) -> Bash:
    """Run a command in bubblewrap."""

    async def bash(command: str, **given: Any) -> Any:
        return await coordinator.get("tools", "bash").execute({"command": command, **given})

    return bash
