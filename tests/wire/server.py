"""Serve HTTP/1.1 with JSON and server-sent events on 127.0.0.1, answer from a script, and keep what was asked.

    async with WireServer([json_answer({"error": "busy"}, status=529), stream_answer(events).cut(after=2)]) as server:
        provider = MyProvider(base_url=server.url)

An `Answer` may be cut, may stall and may be slow. A script that has run out answers 599: a request too many. A server
that refuses connections keeps its port.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from http import HTTPStatus
from typing import Any, Self

from amplifier_core.listening import close_server


@dataclass(frozen=True)
class Request:
    """One request; `target` is absolute when the client takes the server for a proxy."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @cached_property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """A status, headers, and a body in pieces: one for JSON, one an event for a stream.

    `cut_after` pieces the connection closes without an end, `reset_after` them it breaks, `end_after` them the body
    ends as if it were whole, and `stall_after` them nothing comes until the client leaves. `hold_after` them the answer
    waits for `held_until`. A slow answer comes by `step` bytes, and `pause` seconds pass before each piece.
    """

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    is_stream: bool = False
    cut_after: int | None = None
    reset_after: int | None = None
    end_after: int | None = None
    stall_after: int | None = None
    step: int = 0
    is_silent: bool = False
    pause: float = 0
    hold_after: int | None = None
    held_until: asyncio.Event | None = None

    def cut(self, after: int) -> Answer:
        return replace(self, cut_after=after)

    def reset(self, after: int) -> Answer:
        return replace(self, reset_after=after)

    def end(self, after: int) -> Answer:
        return replace(self, end_after=after)

    def stall(self, after: int) -> Answer:
        return replace(self, stall_after=after)

    def hold(self, after: int, until: asyncio.Event) -> Answer:
        return replace(self, hold_after=after, held_until=until)

    def slowly(self, step: int = 1) -> Answer:
        return replace(self, step=step)

    def steadily(self, pause: float) -> Answer:
        return replace(self, pause=pause)


def json_answer(body: Any, status: int = 200, **headers: str) -> Answer:
    """Return an answer with JSON, or with these bytes; `retry_after="3"` is the header Retry-After."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer((content,), status, {"content-type": "application/json", **named})


def stream_answer(events: Iterable[bytes], **headers: str) -> Answer:
    """Return an answer with server-sent events; each is whole, with its empty line."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(tuple(events), headers={"content-type": "text/event-stream; charset=utf-8", **named}, is_stream=True)


def sse(data: Any, event: str | None = None) -> bytes:
    """Return one server-sent event; `data` is JSON unless it is text."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


BEFORE_HEAD = -1
"""The place before the status of an answer, for `cut` and `reset`."""
NEVER = Answer((), is_silent=True)
"""No answer at all: the client waits until it leaves."""

Script = Sequence[Answer] | Callable[[Request], Answer]


def show_error(error: Exception) -> str:
    """Return an error of a provider as a person gets it: its text, and its remedy if that is beside it."""
    remedy = getattr(error, "remedy", None)
    return str(error) if remedy is None else f"{error}. {remedy}"


ACCEPTING = 4
"""Rounds of the loop until an accepted connection has its task."""


class WireServer:
    """A server for one test, in the test's own event loop."""

    def __init__(self, script: Script = ()) -> None:
        self._answers = iter(()) if callable(script) else iter(script)
        self._answer: Callable[[Request], Answer] = script if callable(script) else self._next_answer
        self.requests: list[Request] = []
        self.arrived = asyncio.Event()
        """Set by every request."""
        self.left = asyncio.Event()
        """Set when a client leaves before the end of its answer."""
        self.stalled = asyncio.Event()
        """Set when an answer has come to the place where it stalls."""
        self.sent = 0
        """Pieces sent so far, of all answers."""
        self.whole: list[Request] = []
        """The requests whose answers were sent to their end."""
        self.url = ""

    def answer_by(self, script: Callable[[Request], Answer]) -> None:
        """Answer by this script from now on."""
        self._answer = script

    def _next_answer(self, request: Request) -> Answer:
        return next(self._answers, json_answer({"error": {"message": "a request too many"}}, status=599))

    async def __aenter__(self) -> Self:
        self._place = _bind("127.0.0.1", 0)  # without listening: the port stays ours while connections are refused
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()
        self._idle: set[asyncio.Task[Any]] = set()
        self.url = "http://{}:{}".format(*self._place.getsockname())
        await self.accept()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            await close_server(self._server)
        self.refuse()
        for _ in range(ACCEPTING):
            await asyncio.sleep(0)
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._place.close()

    async def accept(self) -> None:
        """Accept connections."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=_bind(*self._place.getsockname()), backlog=1024)

    def refuse(self) -> None:
        """Refuse new connections until `accept`, and close those without a request."""
        if self._server is not None:
            self._server.close()
            self._server = None
            for task in self._idle:
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while head := await self._read_head(task, reader):
                if not await self._serve_one(head, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            self.left.set()
        finally:
            self._open.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _read_head(self, task: asyncio.Task[Any], reader: asyncio.StreamReader) -> str:
        """Return the head of the next request; an empty one if the client leaves before it."""
        self._idle.add(task)
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return ""
        finally:
            self._idle.discard(task)

    async def _serve_one(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection may have another one."""
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(method, target, headers, body)
        self.requests.append(request)
        self.arrived.set()
        answer = self._answer(request)
        if answer.is_silent:
            self.stalled.set()
            await self._wait_for_leaving(reader)
            return False
        is_sent = await self._write(answer, reader, writer)
        if is_sent and answer.end_after is None:
            self.whole.append(request)
        return is_sent

    async def _write(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if answer.cut_after == BEFORE_HEAD:
            return False
        if answer.reset_after == BEFORE_HEAD:
            _break(writer)
            return False
        head = f"HTTP/1.1 {answer.status} {_phrase(answer.status)}\r\n"
        framing = {"transfer-encoding": "chunked"} if answer.is_stream else {"content-length": str(_size(answer))}
        for name, value in {**answer.headers, **framing}.items():
            head += f"{name}: {value}\r\n"
        await self._send(writer, head.encode() + b"\r\n", step=0)
        for number in range(len(answer.pieces) + 1):
            if number == answer.hold_after and answer.held_until is not None:
                await answer.held_until.wait()
            if number == answer.cut_after:
                return False
            if number == answer.reset_after:
                _break(writer)
                return False
            if number == answer.stall_after:
                self.stalled.set()
                await self._wait_for_leaving(reader)
                return False
            if number == answer.end_after or number == len(answer.pieces):
                break
            piece = answer.pieces[number]
            framed = f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if answer.is_stream else piece
            if answer.pause:
                await asyncio.sleep(answer.pause)
            await self._send(writer, framed, step=answer.step)
            self.sent += 1
        if answer.is_stream:
            await self._send(writer, b"0\r\n\r\n", step=0)
        return True

    async def _send(self, writer: asyncio.StreamWriter, content: bytes, *, step: int) -> None:
        step = step or len(content)
        for part in (content[at : at + step] for at in range(0, len(content), step)):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    async def _wait_for_leaving(self, reader: asyncio.StreamReader) -> None:
        """Return when the client has closed the connection."""
        while await reader.read(1024):
            pass
        self.left.set()


def _bind(host: str, port: int) -> socket.socket:
    place = socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # asyncio sends small pieces at once if it knows the protocol
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    place.bind((host, port))
    return place


def _break(writer: asyncio.StreamWriter) -> None:
    """Break a connection: its client gets a reset instead of an end."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _size(answer: Answer) -> int:
    return sum(map(len, answer.pieces))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
