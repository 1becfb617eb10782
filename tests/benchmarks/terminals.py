"""Run a program at a terminal of its own, type there, and note when something is shown."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from contextlib import asynccontextmanager, suppress
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

PROMPT = re.compile(rb"> \Z")
PATIENCE = 30.0
"""Seconds."""
ROWS, COLUMNS = 40, 120


class Terminal:
    """A terminal with a program; what is shown is kept until it is looked for."""

    def __init__(self, side: int) -> None:
        self._side = side
        self._shown = b""
        self._at = 0.0
        self._came = asyncio.Event()

    def read(self) -> None:
        """Take what is shown."""
        with suppress(OSError):  # the program has ended: `until` runs out of patience
            self._shown += os.read(self._side, 65536)
        self._at = perf_counter()
        self._came.set()

    def type(self, text: str) -> float:
        """Type a text, `\\x03` for Ctrl-C; return the time just before."""
        self._shown = b""
        began = perf_counter()
        os.write(self._side, text.encode())
        return began

    async def until(self, pattern: re.Pattern[bytes]) -> float:
        """Wait for a pattern in what is shown; return the time when it was read. Raises `TimeoutError`."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not pattern.search(self._shown):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise TimeoutError(f"{pattern.pattern!r} was not shown; there was: {self._shown!r}") from None
        return self._at


@asynccontextmanager
async def at_terminal(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> AsyncIterator[Terminal]:
    """Run a program at a terminal of its own while the block runs; it is killed then."""
    process, side = pty.fork()
    if process == 0:
        try:
            os.chdir(folder)
            os.execve(command[0], [*command], {**environ, "TERM": "xterm-256color"})
        finally:
            os._exit(127)
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    terminal, loop = Terminal(side), asyncio.get_running_loop()
    loop.add_reader(side, terminal.read)
    try:
        await terminal.until(PROMPT)
        yield terminal
    finally:
        loop.remove_reader(side)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)  # noqa: ASYNC222 - it is killed
        os.close(side)
