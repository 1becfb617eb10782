"""Measure the sandbox: what it adds to a command and to a tool, and the decoding of a command for the permissions."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from amplifier_core import ModuleCoordinator
from amplifier_foundation.bundle.module_loader import BundleModuleLoader
from amplifier_tool_bash import describe_sandbox, mount
from amplifier_tool_bash.commands.decoding import describe_command

from .measure import Row, awaited, called, in_turns, timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

AT_MOST = 15e-3  # goal: seconds that a sandbox adds to a command
DECODING = 300e-6
TOOL_BEGINS, TOOL_CALL = 400e-3, 3e-3
COMMAND = "cd src && grep -rn 'a b' . | head -20"


async def rows() -> AsyncIterator[Row]:
    """Run `true` in bash, alone and by the tool; then decode a command again and again."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        [taken] = await in_turns(called(partial(describe_command, COMMAND, folder, is_confined=True), 200), rounds=15)
        yield timed("decode a command of three", taken, at_most=DECODING)
        kind = await asyncio.to_thread(lambda: describe_sandbox()["kind"])
        if kind != "bubblewrap":
            yield Row("  a command in bubblewrap", 0.0, note="bubblewrap is not installed")
            return
        coordinator = ModuleCoordinator(session_id="bench")
        coordinator.register_capability("session.working_dir", folder)
        await mount(coordinator, {})
        tool = coordinator.get("tools", "bash")
        alone, inside = await in_turns(
            awaited(_run_alone, 5), awaited(partial(_run_inside, tool), 5), rounds=15
        )  # fmt: skip
        await coordinator.cleanup()
    yield timed("what bubblewrap adds to a command", inside - alone, at_most=AT_MOST)
    yield Row("  bash in bubblewrap, beside bash alone", inside, alone)
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        (Path(folder) / "a.txt").write_text("one\n")
        [taken] = await in_turns(awaited(partial(_mount_tools, folder, sandbox=True), 1), rounds=5)
        yield timed("begin the process of a tool in bubblewrap", taken, at_most=TOOL_BEGINS)
        here, there = [await _open(folder, sandbox=sandbox) for sandbox in (False, True)]
        alone, inside = await in_turns(awaited(partial(_read, here), 20), awaited(partial(_read, there), 20), rounds=9)
        for coordinator in (here, there):
            await coordinator.cleanup()
    yield timed("what bubblewrap adds to the call of a tool", inside - alone, at_most=TOOL_CALL)


async def _open(folder: str, *, sandbox: bool) -> ModuleCoordinator:
    """Return a coordinator with the file tools."""
    coordinator = ModuleCoordinator(session_id="bench")
    coordinator.register_capability("session.working_dir", folder)
    loader = BundleModuleLoader()
    load = loader.load_in_sandbox if sandbox else loader.load
    cleanup = await (await load("tool-filesystem", {}, None, coordinator))(coordinator)
    coordinator.register_cleanup(cleanup or (lambda: None))
    return coordinator


async def _mount_tools(folder: str, *, sandbox: bool) -> None:
    await (await _open(folder, sandbox=sandbox)).cleanup()


async def _read(coordinator: ModuleCoordinator) -> None:
    result = await coordinator.get("tools", "read_file").execute({"file_path": "a.txt"})
    if not result.success:
        raise AssertionError(result.error)


async def _run_alone() -> None:
    process = await asyncio.create_subprocess_exec("bash", "--noprofile", "--norc", "-c", "true")
    await process.wait()


async def _run_inside(tool: Any) -> None:
    result = await tool.execute({"command": "true"})
    if not result.success:
        raise AssertionError(result.error)
