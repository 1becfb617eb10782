"""Run a command in a terminal of an editor, in the same sandbox: the person sees its output, and can stop it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from amplifier_core.utils.interpreters import PYTHON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_sandbox.contracts import Launch

    from .output import Output

TERMINALS = "client.terminals"
"""The capability with the terminals of an editor."""
TERMINAL = "bash:terminal"
"""The event of a command in a terminal: `terminal_id`, and the `tool_call_id`."""
MARK = "AMPLIFIER_COMMAND"
"""The variable by which the processes of a command are known."""
LONGEST_ARGUMENT = 100_000
"""Bytes; Linux starts no program with an argument of 128 KiB."""
SWEEPS = 100
"""Most rounds to kill what is left of a command."""
QUIET, PAUSE = 2, 0.05
"""Rounds that find nothing, one after the other, and seconds between them: a process that begins a program has neither
environment nor arguments for a moment.
"""
_LAUNCHER = """
import base64, json, os, sys
given = json.loads(base64.b64decode("".join(sys.argv[2:])))
for number, content in given["descriptors"]:
    made = os.memfd_create("inherited")
    os.write(made, base64.b64decode(content))
    os.lseek(made, 0, os.SEEK_SET)
    os.dup2(made, number)
    os.set_inheritable(number, True)
os.execvpe(given["argv"][0], given["argv"], given["environment"])
"""
"""Becomes the program of a `Launch`: a terminal hands over arguments, and no descriptors."""


class ClientTerminals(Protocol):
    """The terminals of an editor, by their ids. Raises `OSError` for what it refuses."""

    async def create(self, argv: Sequence[str], folder: str, most: int) -> str:
        """Run a program in a new terminal, and return its id; `most` are the bytes of output that it keeps."""
        ...

    async def wait(self, terminal: str) -> int:
        """Wait for the end of the program, and return its exit code."""
        ...

    async def read_output(self, terminal: str) -> tuple[str, bool]:
        """Return the output so far, and whether its beginning was dropped."""
        ...

    async def kill(self, terminal: str) -> None:
        """End the program."""
        ...

    async def release(self, terminal: str) -> None:
        """Let go of the terminal."""
        ...


class TerminalCommand:
    """A command in a terminal; `finish` must follow."""

    def __init__(self, terminals: ClientTerminals, terminal: str, output: Output, mark: str) -> None:
        self.terminal = terminal
        """The id of its terminal."""
        self._terminals = terminals
        self._output = output
        self._mark = mark
        self._code = 0

    @classmethod
    async def start(
        cls, terminals: ClientTerminals, launch: Launch, folder: str, output: Output, most: int
    ) -> TerminalCommand:
        """Start a command; at most `most` bytes of its output are kept. Raises `OSError`."""
        try:
            descriptors = [(number, base64.b64encode(_read_all(number)).decode()) for number in launch.descriptors]
        finally:
            for number in launch.descriptors:
                os.close(number)
        mark = secrets.token_hex(8)
        environment = {**launch.environment, MARK: mark}
        program = [*PYTHON, "-I", "-c", _LAUNCHER, f"{MARK}={mark}"]
        given = {"argv": launch.argv, "environment": environment, "descriptors": descriptors}
        packed = base64.b64encode(json.dumps(given).encode()).decode()
        parts = [packed[start : start + LONGEST_ARGUMENT] for start in range(0, len(packed), LONGEST_ARGUMENT)]
        terminal = await terminals.create([*program, *parts], folder, most)
        return cls(terminals, terminal, output, mark)

    @property
    def code(self) -> int:
        """The exit code of the ended command, as a shell counts."""
        return self._code

    async def finish(self, seconds: float | None, grace: float) -> bool:
        """Wait for the end; return whether it came in time. A command that is late, or cancelled, is killed."""
        in_time = True
        try:
            try:
                async with asyncio.timeout(seconds):
                    self._code = await self._terminals.wait(self.terminal)
            except TimeoutError:
                in_time = False
                await self._kill()
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        self._code = await self._terminals.wait(self.terminal)
            except BaseException:
                await self._kill()
                raise
            text, is_cut = await self._terminals.read_output(self.terminal)
            note = "[the beginning of the output is missing here]\n" if is_cut else ""
            self._output.add(f"{note}{text}".replace("\r\n", "\n").encode(errors="replace"), is_last=True)
        finally:
            with suppress(OSError):
                await self._terminals.release(self.terminal)
        return in_time

    async def _kill(self) -> None:
        """Kill the command: an editor may end its first process alone, and that before the sandbox holds the others."""
        try:
            with suppress(OSError):  # an editor that refuses, or is gone
                await self._terminals.kill(self.terminal)
        finally:
            await asyncio.to_thread(_kill_marked, f"{MARK}={self._mark}".encode())


def _kill_marked(mark: bytes) -> None:
    """Kill the processes with a mark in their environment or arguments; without /proc, kill nothing."""
    quiet = 0
    for _ in range(SWEEPS):
        found = False
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if any(mark in (folder / name).read_bytes().split(b"\0") for name in ("environ", "cmdline")):
                    os.kill(int(folder.name), signal.SIGKILL)
                    found = True
        quiet = 0 if found else quiet + 1
        if quiet == QUIET:
            return
        time.sleep(PAUSE * quiet)


def _read_all(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
