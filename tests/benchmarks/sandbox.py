"""Measure the sandbox: what it adds to a command and to a tool, and the decoding of a command for the permissions."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from amplifier_core import ModuleCoordinator
from amplifier_foundation.bundle.module_loader import BundleModuleLoader
from amplifier_tool_bash import describe_sandbox, mount
from amplifier_tool_bash.commands.decoding import describe_command

from .measure import Row, awaited, called, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADDED = 3.0  # goal: times bubblewrap by hand with one mount, of what it adds to a command
DECODING = 10.0  # goal: times `shlex` on the same command
TOOL_BEGINS = 17.0  # goal: times `python -c pass` in bubblewrap by hand
TOOL_CALL = 60.0  # goal: times a line of JSON to a Python in bubblewrap by hand, and back
BASH = ("bash", "--noprofile", "--norc", "-c")
BWRAP = ("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/", "/")
BWRAP += ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--")
ECHO = "import json, sys\nfor line in sys.stdin: print(json.dumps(json.loads(line)), flush=True)"
LINE = b'{"text": "' + b"x" * 200 + b'"}\n'
COMMAND = "cd src && grep -rn 'a b' . | head -20"


async def _decoding() -> AsyncIterator[Row]:
    """Decode a command again and again."""
    describe = partial(describe_command, COMMAND, "/tmp", is_confined=True)
    ours, limit = await in_turns(called(describe, 100), called(partial(shlex.split, COMMAND), 100), rounds=15)
    yield Row("decode a command of three / shlex", ours, limit, at_most_ratio=DECODING)


async def _commands() -> AsyncIterator[Row]:
    """Run `true` in bash: alone, in bubblewrap by hand, and by the tool."""
    if not await _is_installed():
        yield Row("a command in bubblewrap", 0.0, note="bubblewrap is not installed")
        return
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        coordinator = ModuleCoordinator(session_id="bench")
        coordinator.register_capability("session.working_dir", folder)
        await mount(coordinator, {})
        tool = coordinator.get("tools", "bash")
        alone, by_hand, inside = await in_turns(
            awaited(partial(_run, *BASH, "true"), 5),
            awaited(partial(_run, *BWRAP, *BASH, "true"), 5),
            awaited(partial(_run_inside, tool), 5),
            rounds=15,
        )
        await coordinator.cleanup()
    what = "what bubblewrap adds to a command / by hand"
    yield Row(what, inside - alone, by_hand - alone, at_most_ratio=ADDED)
    yield Row("  bash in bubblewrap, beside bash alone", inside, alone)


async def _tools() -> AsyncIterator[Row]:
    """Begin the process of a tool in bubblewrap, and call the tool there and here."""
    if not await _is_installed():
        return
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        (Path(folder) / "a.txt").write_text("one\n")
        begun, limit = await in_turns(
            awaited(partial(_mount_tools, folder, sandbox=True), 1),
            awaited(partial(_run, *BWRAP, sys.executable, "-c", "pass"), 1),
            rounds=9,
        )
        yield Row("begin the process of a tool in bubblewrap / of Python", begun, limit, at_most_ratio=TOOL_BEGINS)
        here, there = [await _open(folder, sandbox=sandbox) for sandbox in (False, True)]
        with subprocess.Popen(
            [*BWRAP, sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as echo:
            alone, inside, line = await in_turns(
                awaited(partial(_read, here), 20),
                awaited(partial(_read, there), 20),
                called(partial(_echo, echo), 20),
                rounds=15,
            )
            echo.kill()
        for coordinator in (here, there):
            await coordinator.cleanup()
    what = "what bubblewrap adds to the call of a tool / a line to Python in it, and back"
    yield Row(what, inside - alone, line, at_most_ratio=TOOL_CALL)


async def _is_installed() -> bool:
    return bool(await asyncio.to_thread(lambda: describe_sandbox()["kind"]) == "bubblewrap")


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


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    await process.wait()


def _echo(echo: subprocess.Popen[bytes]) -> None:
    assert echo.stdin is not None and echo.stdout is not None
    echo.stdin.write(LINE)
    echo.stdin.flush()
    echo.stdout.readline()


async def _run_inside(tool: Any) -> None:
    result = await tool.execute({"command": "true"})
    if not result.success:
        raise AssertionError(result.error)


PARTS = (_decoding, _commands, _tools)
