"""Measure the shell tool: what a sandbox adds to a command, and the decoding of a command for the permissions."""

from __future__ import annotations

import asyncio
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from amplifier_core import ModuleCoordinator
from amplifier_tool_bash import describe_sandbox, mount
from amplifier_tool_bash.commands.decoding import describe_command

from .measure import Row, awaited, called, in_turns, timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

AT_MOST = 15e-3  # goal: seconds that a sandbox adds to a command
DECODING = 300e-6
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


async def _run_alone() -> None:
    process = await asyncio.create_subprocess_exec("bash", "--noprofile", "--norc", "-c", "true")
    await process.wait()


async def _run_inside(tool: Any) -> None:
    result = await tool.execute({"command": "true"})
    if not result.success:
        raise AssertionError(result.error)
