"""What the process that runs background sessions is asked from outside: a socket for its user alone.

A request and its answer are one line of JSON each. The socket stands in the data folder, or, where that path is longer
than a socket's may be, in a private folder of its own, which the lock of the data folder names.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, SessionConflict

from .paths import data_home, make_private

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

LONGEST_PATH = 100
"""Bytes of a socket's path, which systems limit to 104 or 108."""
LONGEST_REQUEST = 1024 * 1024
"""Bytes."""
PATIENCE = 30.0
"""Seconds that an answer may take: one session that is stopped may end its work first."""
AT_ONCE = 5.0
"""Seconds for what is answered at once, by a process that is not stopped itself."""


class NothingRuns(AmplifierError, LookupError):
    """No process runs background sessions with this data folder."""

    def __init__(self) -> None:
        super().__init__("nothing runs. Start something with: amplifier up BUNDLE")


class NoSuchBackgroundSession(AmplifierError, LookupError):
    """No background session has this name or id; the message says which there are."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        from .bundles.problems import did_you_mean

        self.name = name
        listed = sorted(set(known))
        hint = did_you_mean(name, listed) or "."
        rest = f"There are: {', '.join(listed)}" if listed else "There is none. See: amplifier ps"
        super().__init__(f"no background session '{name}'{hint} {rest}")


def socket_path() -> Path:
    """Return where this process is to be asked; the folder is its user's alone."""
    path = make_private(data_home() / "run") / f"{os.getpid()}.sock"
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    return Path(tempfile.mkdtemp(prefix="amplifier-")) / "up.sock"


@asynccontextmanager
async def answering(path: Path, handle: Callable[[str, Mapping[str, Any]], Awaitable[Any]]) -> AsyncIterator[None]:
    """Answer at `path` what `handle(operation, arguments)` returns, while the block runs; errors are answers too."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(json.dumps(await _answer(reader, handle), default=str).encode() + b"\n")
            await writer.drain()
            writer.close()

    before = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(converse, _vacant(path), limit=LONGEST_REQUEST)
    finally:
        os.umask(before)
    try:
        yield
    finally:
        server.close()
        _remove(path)


def _vacant(path: Path) -> Path:
    path.unlink(missing_ok=True)  # of a process that was killed, and had this one's number
    return path


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent.name != "run":
        with suppress(OSError):
            path.parent.rmdir()


async def _answer(
    reader: asyncio.StreamReader, handle: Callable[[str, Mapping[str, Any]], Awaitable[Any]]
) -> dict[str, Any]:
    try:
        async with asyncio.timeout(PATIENCE):
            request = json.loads(await reader.readline())
            arguments = {name: value for name, value in request.items() if name != "operation"}
            return {"ok": True, "answer": await handle(str(request["operation"]), arguments)}
    except AmplifierError as error:
        return {"ok": False, "error": str(error), "kind": type(error).__name__}
    except (ValueError, KeyError, AttributeError, TimeoutError) as error:
        return {"ok": False, "error": f"no request: {type(error).__name__}", "kind": "ValueError"}


async def ask(owner: Mapping[str, Any], operation: str, *, patience: float = AT_ONCE, **arguments: Any) -> Any:
    """Return what the process that owns the data folder answers; `owner` is what `running_owner` returns.

    Raises `SessionConflict` with its words when it refuses, and when it does not answer within `patience` seconds.
    """
    path = str(owner.get("socket") or "")
    try:
        async with asyncio.timeout(patience):
            answer = json.loads(await _exchanged(path, {"operation": operation, **arguments}))
    except (OSError, ValueError, TimeoutError) as error:
        why = str(error) or f"nothing came within {patience:g} s; it may be stopped (kill -CONT), or hang (kill -9)"
        raise SessionConflict(path, f"process {owner.get('pid', '?')} does not answer at {path}: {why}") from error
    if not answer.get("ok"):
        raise SessionConflict(path, str(answer.get("error")))
    return answer.get("answer")


async def _exchanged(path: str, request: Mapping[str, Any]) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path, limit=LONGEST_REQUEST)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()
