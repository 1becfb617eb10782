"""Exchange calls between two processes over a socket: JSON, each message after its length.

    {"id": 7, "call": "append", "with": {…}}      a call; the other side answers
    {"id": 7, "result": …}                         its answer
    {"id": 7, "error": {…}}                        its failure, see `error_forms`
    {"call": "show", "with": {…}}                  a call that nobody waits for

A child is not trusted: it cannot send code, a message has a largest size, and a broken one ends the link.
"""

from __future__ import annotations

import asyncio
import json
import struct
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from amplifier_core.json_values import to_json

from .error_forms import read_error, write_error

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    Serve = Callable[[str, dict[str, Any]], Awaitable[Any]]

LARGEST = 64 * 1024 * 1024
"""Bytes of a message."""
MOST_CALLS = 256
"""Calls of the other side that are answered at a time; the others wait."""
HEAD = struct.Struct(">I")


class LinkClosed(ConnectionError):
    """The other side is gone."""


class BrokenMessage(ConnectionError):
    """The other side sent something that is no message."""


class Link:
    """One end of a socket in an event loop; `async with` reads until the block ends."""

    def __init__(self, own: socket.socket, serve: Serve) -> None:
        self.failure: Exception | None = None
        """Why the link was cut, unless the other side closed it."""
        self.at_end: Callable[[], object] | None = None
        """Called when the other side is gone, before a waiting call fails of it."""
        self._socket = own
        self._serve = serve
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MOST_CALLS)
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=2**20)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = {self._reading, *self._serving}
        for task in tasks:
            task.cancel()
        try:
            await asyncio.wait(tasks)
        finally:
            self._writer.close()

    async def wait_gone(self) -> None:
        """Return when the other side has closed the socket, or was cut off."""
        await asyncio.wait({self._reading})

    async def wait_closed(self) -> None:
        """Return when the other side has closed the socket, and all its calls are answered."""
        await self.wait_gone()
        while self._serving:
            await asyncio.wait(self._serving)

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Return the answer of the other side. Raises its error, and `LinkClosed`."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"id": number, "call": name, "with": arguments})
            await self._writer.drain()
            return await answer
        finally:
            del self._waiting[number]

    def tell(self, name: str, /, **arguments: Any) -> None:
        """Send a call that nobody waits for; nothing when the link is closed."""
        if not self._is_closed:
            self._send({"call": name, "with": arguments})

    def send(self, data: bytes) -> None:
        """Send bytes as a message of their own, before all calls."""
        self._writer.write(HEAD.pack(len(data)) + data)

    def _send(self, message: dict[str, Any]) -> None:
        if self._is_closed:
            raise LinkClosed("the link is closed")
        self.send(write_message(message))

    async def _read(self) -> None:
        try:
            while True:
                (size,) = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                check_size(size)
                await self._take(read_message(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError):
            if self.at_end is not None:
                self.at_end()
        except BrokenMessage as error:
            self.failure = error
        finally:
            self._is_closed = True
            for each in self._waiting.values():
                if not each.done():
                    each.set_exception(LinkClosed("the other process has ended"))

    async def _take(self, message: dict[str, Any]) -> None:
        if "call" in message:
            await self._room.acquire()
            task = asyncio.create_task(self._answer(message))
            self._serving.add(task)
            task.add_done_callback(self._let_go)
            return
        waiting = self._waiting.get(message.get("id", 0))
        if waiting is not None and not waiting.done():
            if "error" in message:
                waiting.set_exception(read_error(message["error"]))
            else:
                waiting.set_result(message.get("result"))

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._room.release()

    async def _answer(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        try:
            result = await self._serve(message["call"], message.get("with") or {})
            answer = write_message({"id": number, "result": result})
        except Exception as error:
            answer = write_message({"id": number, "error": write_error(error)})
        if number is not None and not self._is_closed:
            self.send(answer)


def ask(own: socket.socket, name: str, /, **arguments: Any) -> Any:
    """Call the other side of a blocking socket, and wait for the answer. Raises its error, and `LinkClosed`."""
    data = write_message({"id": 1, "call": name, "with": arguments})
    own.sendall(HEAD.pack(len(data)) + data)
    (size,) = HEAD.unpack(receive(own, HEAD.size))
    answer = read_message(receive(own, size))
    if "error" in answer:
        raise read_error(answer["error"])
    return answer.get("result")


def receive(own: socket.socket, size: int) -> bytes:
    """Return `size` bytes of a blocking socket. Raises `LinkClosed`."""
    data = bytearray()
    while len(data) < size:
        chunk = own.recv(min(size - len(data), 2**20))
        if not chunk:
            raise LinkClosed("the other process has ended")
        data += chunk
    return bytes(data)


def write_message(message: dict[str, Any]) -> bytes:
    """Return a message in JSON, as stores write it.

    Raises `TypeError` for other values, `ValueError` for a message that is too large.
    """
    data = to_json(message, "message").encode(errors="surrogatepass")
    if len(data) > LARGEST:
        raise ValueError(f"a message of {len(data):,} bytes; {LARGEST:,} at the most cross to another process")
    return data


def read_message(data: bytes) -> dict[str, Any]:
    """Return the message in JSON. Raises `BrokenMessage`."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BrokenMessage("it sent a message that is no JSON") from error
    if not isinstance(message, dict) or not isinstance(message.get("with") or {}, dict):
        raise BrokenMessage("it sent a message that is no call and no answer")
    return message


def check_size(size: int) -> None:
    """Raise `BrokenMessage` for a message that is too large."""
    if size > LARGEST:
        raise BrokenMessage(f"it sent a message of {size:,} bytes; {LARGEST:,} are allowed")
