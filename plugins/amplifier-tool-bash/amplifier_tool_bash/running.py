"""Run one command: start its process, take in its output, and end all its processes."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.process_forks import close_in_forks
from amplifier_sandbox.contracts import find_bash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from amplifier_sandbox.contracts import Launch

    from .output import Output

_PIECE = 65_536
_LAST_OUTPUT = 1.0
"""Seconds for output that is left when a command has ended: a process outside of its group may hold the pipe."""
_HELD = """
exec 8<&0 </dev/null
trap : HUP INT QUIT USR1 USR2 ALRM TERM
(trap '' HUP INT QUIT USR1 USR2 ALRM TERM; unset TMOUT; read -r line <&8; kill -KILL 0) >/dev/null &
SHLVL=$((SHLVL - 1))
(exec "$@" 8<&- 2>&1)
code=$?
kill -KILL $!
wait $!
exit $code
"""
"""Runs a command in bash, and kills its whole group at the end of stdin; signals are left to the command.

With `-p`, nothing of the environment is code for this bash, which is outside of a sandbox. All of it reaches the
command: other shells drop variables whose names they could not write.
"""


class Command:
    """A started command; `finish` must follow."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        stream: asyncio.StreamReader,
        pipe: asyncio.ReadTransport,
        output: Output,
        hear: Callable[[str], Awaitable[None]] | None,
        holding: FileIO,
    ) -> None:
        self._process = process
        self._stream = stream
        self._pipe = pipe
        self._output = output
        self._hear = hear
        self._holding = holding

    @classmethod
    async def start(
        cls, launch: Launch, folder: str, output: Output, hear: Callable[[str], Awaitable[None]] | None = None
    ) -> Command:
        """Start a process in a session of its own; `hear` is told the text of its output as it comes.

        The process ends with this one in any case: the kernel closes the pipe `holding` then.
        """
        is_held = launch.goes_on
        argv = [find_bash(), "-p", "-c", _HELD, "bash", *launch.argv] if is_held else launch.argv
        held, kept = os.pipe()
        holding = close_in_forks(FileIO(kept, "w"))
        incoming, outgoing = os.pipe()
        stream = asyncio.StreamReader(limit=_PIECE)
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(incoming, "rb", 0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=held if is_held else asyncio.subprocess.DEVNULL,
                stdout=outgoing,
                stderr=asyncio.subprocess.DEVNULL if is_held else asyncio.subprocess.STDOUT,
                env=launch.environment,
                pass_fds=launch.descriptors,
                start_new_session=True,
                cwd=folder,
            )
        except BaseException:
            pipe.close()
            holding.close()
            raise
        finally:
            for descriptor in (held, outgoing, *launch.descriptors):
                os.close(descriptor)
        return cls(process, stream, pipe, output, hear, holding)

    @property
    def code(self) -> int:
        """The exit code of the ended command, as a shell counts: 128 and the number of a signal."""
        code = self._process.returncode
        assert code is not None  # `finish` has waited for it
        return code if code >= 0 else 128 - code

    async def finish(self, seconds: float | None, grace: float) -> bool:
        """Wait for the end; return whether it came in time. A command that is late, or cancelled, is stopped."""
        in_time = True
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read())
                try:
                    async with asyncio.timeout(seconds):
                        await self._process.wait()
                except TimeoutError:
                    in_time = False
                    await self._stop(grace)
                except BaseException:
                    await self._stop(grace)
                    raise
                _signal_group(self._process.pid, signal.SIGKILL)  # what the command has left behind
                await asyncio.wait([reading], timeout=_LAST_OUTPUT)
                reading.cancel()
        finally:
            self._pipe.close()
            self._holding.close()
        return in_time

    async def _stop(self, grace: float) -> None:
        """Send SIGTERM to all processes, and SIGKILL after `grace` seconds; wait for the end."""
        try:
            signalled = self._find_signalled()
            for pid in signalled:
                _signal(pid, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace if signalled else 0):
                    await self._process.wait()
        finally:
            for pid in list(_find_descendants(self._process.pid)):
                _signal(pid, signal.SIGKILL)
            _signal_group(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def _find_signalled(self) -> list[int]:
        """Return the processes of the command; of a sandbox with a first process of its own, those below that."""
        below = list(_find_descendants(self._process.pid))
        inside = [pid for pid in below if _is_in_other_namespace(pid)]
        return inside[1:] if inside else [self._process.pid, *below]

    async def _read(self) -> None:
        while piece := await self._stream.read(_PIECE):
            await self._tell(self._output.add(piece))
        await self._tell(self._output.add(b"", is_last=True))

    async def _tell(self, text: str) -> None:
        if text and self._hear is not None:
            await self._hear(text)


def _find_descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, parents first; none on a system without /proc."""
    waiting = [pid]
    while waiting:
        above = waiting.pop(0)
        with suppress(OSError):
            for listed in Path("/proc", str(above), "task").glob("*/children"):
                below = [int(each) for each in listed.read_text().split()]
                waiting += below
                yield from below


def _is_in_other_namespace(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
