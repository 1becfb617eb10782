"""Run one command: bounded input and output, and nothing of it left at its end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_OUTPUT = 1024 * 1024
"""Bytes of each of the two outputs; a command that prints more is killed."""
_PIECE = 65_536
_LAST_OUTPUT = 1.0
"""Seconds for output that is left when a command has ended: a process outside of its group may hold the pipe."""
_FIXED = ("PATH", "HOME", "LANG", "TZ", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL", "AMPLIFIER_HOME")
_MARK = "AMPLIFIER_SESSION"
"""Says that a process belongs to a session: what only a person may say is refused there."""


class Ran(NamedTuple):
    """The end of a command; `problem` says why it has no answer."""

    code: int
    stdout: str = ""
    stderr: str = ""
    problem: str = ""


def make_environment(folders: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
    """Return the environment of commands: a short list, and `more` names."""
    kept = {name: os.environ[name] for name in (*_FIXED, _MARK, *more) if name in os.environ}
    languages = {name: value for name, value in os.environ.items() if name.startswith("LC_")}
    return {**languages, **kept, **folders}


async def run_command(
    command: str, given: bytes, *, folder: str, environment: Mapping[str, str], seconds: float
) -> Ran:
    """Run a command with `given` on its stdin; all its processes end with it, also when the caller is cancelled."""
    running = _Running()
    try:
        await running.start(command, given, folder, environment)
    except (OSError, ValueError) as error:
        running.close()
        return Ran(-1, problem=f"cannot be started: {error}")
    except BaseException:
        running.close()
        raise
    return await running.finish(seconds)


class _Running:
    """One command."""

    _process: asyncio.subprocess.Process

    def __init__(self) -> None:
        self._said = (bytearray(), bytearray())
        self._streams: list[asyncio.StreamReader] = []
        self._pipes: list[asyncio.ReadTransport] = []
        self._problem = ""

    async def start(self, command: str, given: bytes, folder: str, environment: Mapping[str, str]) -> None:
        """Start the process in a session of its own. Raises `OSError` and `ValueError`."""
        with ExitStack() as stack:
            stdin = stack.enter_context(tempfile.TemporaryFile())  # no pipe: the command need not read it
            stdin.write(given)
            stdin.seek(0)
            outlets = [stack.enter_context(os.fdopen(await self._open_pipe(), "wb")) for _ in self._said]
            self._process = await asyncio.create_subprocess_exec(
                shutil.which("bash") or "/bin/sh",
                "-c",
                command,
                stdin=stdin,
                stdout=outlets[0],
                stderr=outlets[1],
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )

    async def _open_pipe(self) -> int:
        """Make a pipe to read from, and return its other end."""
        incoming, outgoing = os.pipe()
        stream = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(incoming, "rb", 0)
        )
        self._streams.append(stream)
        self._pipes.append(pipe)
        return outgoing

    async def finish(self, seconds: float) -> Ran:
        """Wait for the end, and kill what is left."""
        reading = [asyncio.create_task(self._read(*each)) for each in zip(self._streams, self._said, strict=True)]
        try:
            try:
                async with asyncio.timeout(seconds):
                    await self._process.wait()
            except TimeoutError:
                self._problem = self._problem or f"took longer than {seconds:g} s, and was killed"
            self._kill()
            await self._process.wait()
            await asyncio.wait(reading, timeout=_LAST_OUTPUT)
        finally:
            self._kill()
            for task in reading:
                task.cancel()
            self.close()
            await self._process.wait()
        code = self._process.returncode or 0
        if code < 0 and not self._problem:
            self._problem = f"was killed by the signal {signal.Signals(-code).name}"
        out, err = (each.decode("utf-8", "replace") for each in self._said)
        return Ran(code, out, err, self._problem)

    def close(self) -> None:
        """Close the pipes."""
        for pipe in self._pipes:
            pipe.close()

    async def _read(self, stream: asyncio.StreamReader, said: bytearray) -> None:
        while piece := await stream.read(_PIECE):
            said += piece
            if len(said) > MOST_OUTPUT:
                self._problem = f"printed more than {MOST_OUTPUT} bytes, and was killed"
                self._kill()
                return

    def _kill(self) -> None:
        """Kill the command with all processes below it, and those left in its group."""
        pid = self._process.pid
        below = list(_find_below(pid)) if self._process.returncode is None else []
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        for each in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)


def _find_below(pid: int) -> Iterator[int]:
    """Yield the processes below one; none on a system without /proc."""
    waiting = [pid]
    while waiting:
        above = waiting.pop()
        with suppress(OSError):
            for listed in Path("/proc", str(above), "task").glob("*/children"):
                below = [int(each) for each in listed.read_text().split()]
                waiting += below
                yield from below
