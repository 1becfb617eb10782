"""Answer other processes at a socket, which only its user can open.

A request and its answer are one line of JSON each; after the answer to some, lines follow until the client leaves. The
socket lies in the data folder, or in a private folder of its own when that path is too long for a socket. The lock of
the data folder names it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import call_guarded
from amplifier_core.errors import AmplifierError
from amplifier_core.listening import close_server
from amplifier_core.process_forks import close_in_forks

from ..paths import data_home, make_private
from .asking import AT_ONCE, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

logger = logging.getLogger(__name__)

LONGEST_PATH = 100
"""Bytes of a socket's path; systems allow 104 or 108."""
LONGEST_REQUEST = 1024 * 1024
"""Bytes."""


def socket_path() -> Path:
    """Return a path for a socket of this process, in a folder that only its user can open.

    A process in another container may have its number, and share the folder.
    """
    path = make_private(data_home() / "run") / f"{os.getpid()}-{urlsafe_b64encode(os.urandom(3)).decode()}.sock"
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    return Path(tempfile.mkdtemp(prefix="amplifier-")) / "up.sock"


@asynccontextmanager
async def answering(path: Path, handle: Callable[[str, Mapping[str, Any]], Awaitable[Any]]) -> AsyncIterator[None]:
    """Answer requests at `path` with `handle(operation, arguments)` while the block runs; errors are answers too.

    A request that takes longer than `PATIENCE` goes on after its answer, until the block ends. An answer that is an
    async generator of lines is streamed, until the client leaves or the block ends.
    """
    handling: set[asyncio.Future[Any]] = set()
    streaming: set[asyncio.Task[Any] | None] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        try:
            with suppress(OSError, asyncio.CancelledError):  # nobody awaits this task: asyncio would log its end
                answer = await _answer(reader, handle, handling)
                lines = answer.get("answer")
                if not isinstance(lines, AsyncGenerator):
                    writer.write(json.dumps(answer, default=str).encode() + b"\n")
                    await writer.drain()
                else:
                    streaming.add(task)
                    await _stream(lines, reader, writer)
        finally:
            streaming.discard(task)
            writer.close()

    before = os.umask(0o177)
    try:
        _remove(path)  # left by a killed process with the same number
        listening = close_in_forks(socket.socket(socket.AF_UNIX))
        listening.bind(os.fspath(path))
        server = await asyncio.start_unix_server(converse, sock=listening, limit=LONGEST_REQUEST)
    finally:
        os.umask(before)
    try:
        yield
    finally:
        await close_server(server)
        for each in (*handling, *filter(None, streaming)):
            each.cancel()
        await asyncio.gather(*filter(None, streaming), return_exceptions=True)
        with suppress(OSError):  # its folder may be away
            _remove(path)
            if path.parent.name != "run":
                path.parent.rmdir()


async def _stream(lines: AsyncGenerator[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send lines until they end, or the client leaves."""

    async def send() -> None:
        writer.write(b'{"ok": true, "answer": "follows"}\n')
        with suppress(OSError):
            async for line in lines:
                writer.write(line.encode() + b"\n")
                await writer.drain()

    async with aclosing(lines), asyncio.TaskGroup() as group:
        sending, leaving = group.create_task(send()), group.create_task(reader.read(1))
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
        leaving.cancel()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


async def _answer(
    reader: asyncio.StreamReader,
    handle: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
    handling: set[asyncio.Future[Any]],
) -> dict[str, Any]:
    try:
        async with asyncio.timeout(AT_ONCE):
            request = json.loads(await reader.readline())
        arguments = {name: value for name, value in request.items() if name != "operation"}
        operation = str(request["operation"])
        working = asyncio.ensure_future(call_guarded(handle, operation, arguments))
        handling.add(working)
        working.add_done_callback(handling.discard)
        await asyncio.wait({working}, timeout=PATIENCE)
        if not working.done():
            working.add_done_callback(_report_late_failure)
            return {"ok": False, "error": _explain_delay(operation, arguments), "kind": "TimeoutError"}
        return {"ok": True, "answer": working.result()}
    except AmplifierError as error:
        return {"ok": False, "error": str(error), "kind": type(error).__name__}
    except (ValueError, KeyError, AttributeError, RecursionError, TimeoutError) as error:
        return {"ok": False, "error": f"no request: {type(error).__name__}", "kind": "ValueError"}


def _explain_delay(operation: str, arguments: Mapping[str, Any]) -> str:
    subject = f"{operation} {arguments['name']}" if arguments.get("name") else operation
    return (
        f"'{subject}' has not ended after {PATIENCE:g} s, and goes on: something that runs there does not end. Look at "
        "it with: amplifier ps, amplifier logs; stop the whole process with: amplifier stop --all"
    )


def _report_late_failure(request: asyncio.Future[Any]) -> None:
    if not request.cancelled() and request.exception() is not None:
        logger.error("a request failed after its answer: %s", request.exception())
