"""Run a server's program, and exchange messages with it over its standard input and output.

Unlike the SDK's transport, this one bounds a message and what is no message, keeps the last words of the program for
errors, and ends a program that is stopped within seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.permissions.hidden import replace_unprintable

from .errors import UNREADABLE, ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

LONGEST_MESSAGE = 16 * 1024 * 1024
"""Bytes of one message."""
NOISE = 1000
"""Lines without a message, one after the other, that a program may print where messages are expected."""
TOGETHER = 20
"""Lines of the buffer that are read in one turn of the loop: a flood of them would hold up everybody."""
GRACE, PATIENCE = 0.5, 1.0
"""Seconds for a program to end by itself when its input ends, and after SIGTERM; then it is killed."""
WORDS = 2000
"""Characters of a program's last words."""
SHOWN = 300
"""Those of them in an error."""
_BEGUN_ANSWER = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*"?(\d{1,18})"?\s*,\s*"(?:result|error)"')


class Program:
    """The process of a server."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        """Set when no more messages come."""
        self.problem = ""
        """Why it was given up, if it did not end by itself."""
        self.process: Process | None = None
        self._words = ""

    def describe_end(self) -> str:
        """Return how it ended, with its last words."""
        code = self.process.returncode if self.process is not None else None
        if self.problem:
            ended = self.problem
        elif code is None:
            ended = "it closed its output"
        else:
            ended = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        words = " ".join(self._words.split())
        if len(words) > SHOWN:
            words = f"… {words[-SHOWN:].partition(' ')[2] or words[-SHOWN:]}"  # a whole word first
        return f"{ended}: {words}" if words else ended

    def hear(self, text: bytes) -> None:
        """Keep what it says beside its messages."""
        shown = text.decode("utf-8", "replace")
        self._words = (self._words + replace_unprintable(shown, lambda each: " "))[-WORDS:]

    @asynccontextmanager
    async def run(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: str, keeps: Callable[[Any], bool]
    ) -> AsyncIterator[Any]:
        """Yield the streams of messages while the program runs; it is ended with all that it started.

        A message that `keeps` returns False for is dropped. Raises `ServerError` if it does not start.
        """
        import anyio

        loop = asyncio.get_running_loop()
        try:
            # As `create_subprocess_exec` does it, which keeps the transport: no pipe of a killed program stays open.
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=LONGEST_MESSAGE, loop=loop),
                *argv,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ServerError(f"'{argv[0]}' does not start: {getattr(error, 'strerror', None) or error}") from None
        process = self.process = Process(transport, protocol, loop)
        incoming_end: MemoryObjectSendStream[SessionMessage | Exception]
        incoming: MemoryObjectReceiveStream[SessionMessage | Exception]
        incoming_end, incoming = anyio.create_memory_object_stream(0)
        outgoing: MemoryObjectSendStream[SessionMessage]
        outgoing_end: MemoryObjectReceiveStream[SessionMessage]
        outgoing, outgoing_end = anyio.create_memory_object_stream(0)
        try:
            async with anyio.create_task_group() as tasks, incoming, outgoing:
                tasks.start_soon(self._read, process, incoming_end, keeps)
                tasks.start_soon(self._write, process, outgoing_end)
                tasks.start_soon(self._listen, process)
                try:
                    yield incoming, outgoing
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            incoming_end.close()
            outgoing_end.close()
            try:
                with anyio.CancelScope(shield=True):
                    await _run_to_end(_end(process))
            finally:
                transport.close()

    async def _read(
        self,
        process: Process,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
        keeps: Callable[[Any], bool],
    ) -> None:
        import anyio
        from mcp.shared.message import SessionMessage

        assert process.stdout is not None  # it is a pipe
        noise = lines = 0
        async with incoming:
            try:
                while line := await process.stdout.readline():
                    lines += 1
                    if lines % TOGETHER == 0:
                        await asyncio.sleep(0)
                    try:
                        message = read_message(line)
                    except ValueError:
                        noise += 1
                        self.hear(line[:WORDS])
                        if (number := _find_answered(line)) is not None:
                            await incoming.send(SessionMessage(_make_unreadable(number)))
                        if noise > NOISE:
                            self.problem = "it prints text where messages are expected"
                            return
                        continue
                    noise = 0
                    if keeps(message):
                        await incoming.send(SessionMessage(message))
                await _wait(process, GRACE)  # for its exit code
            except ValueError:  # of readline
                self.problem = f"it sent a message of more than {LONGEST_MESSAGE >> 20} MiB"
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            finally:
                self.lost.set()  # before the end of the stream fails the calls that wait

    async def _write(self, process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert process.stdin is not None  # it is a pipe
        with suppress(OSError):
            async for each in outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                await process.stdin.drain()

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None  # it is a pipe
        with suppress(OSError):
            while text := await process.stderr.read(4096):
                self.hear(text)
                await asyncio.sleep(0)


def read_message(line: bytes) -> Any:
    """Return a message; halves of a character become `?`: a server may have cut a text there. Raises `ValueError`."""
    from mcp_types import jsonrpc_message_adapter

    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        if b"\\ud" not in line.lower():
            raise
    try:
        whole = _dump_whole(json.loads(line))
    except RecursionError as error:
        raise ValueError(str(error)) from None
    return jsonrpc_message_adapter.validate_json(whole, by_name=False)


def replace_halves(value: Any) -> Any:
    """Return a JSON value that can be sent: halves of a character become `?`."""
    return json.loads(_dump_whole(value))


def _dump_whole(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _find_answered(line: bytes) -> str | None:
    """Return the id of the request that a line answers, though it is no message; None: it answers none."""
    with suppress(ValueError, RecursionError):
        whole = json.loads(line, parse_int=str)
        is_answer = isinstance(whole, dict) and "jsonrpc" in whole and "method" not in whole
        return str(whole["id"]) if is_answer and whole.get("id") is not None else None
    begun = _BEGUN_ANSWER.match(line)
    return begun[1].decode() if begun else None


def _make_unreadable(number: str) -> Any:
    """Return the message that fails a request whose answer is none; the SDK drops one that nobody waits for."""
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError

    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=PARSE_ERROR, message=UNREADABLE))


async def _end(process: Process) -> None:
    """End a program and what it started; one that no signal ends is left."""
    assert process.stdin is not None  # it is a pipe
    process.stdin.close()
    await _wait(process, GRACE)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if await _wait(process, PATIENCE):
            return


async def _run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine, also when the own task is cancelled meanwhile."""
    task = asyncio.create_task(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation
    await task


async def _wait(process: Process, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()
            return True
    return False
