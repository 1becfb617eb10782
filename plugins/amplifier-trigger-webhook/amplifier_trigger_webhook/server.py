"""The server of this process at one host and port, which every webhook there shares."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from amplifier_core.errors import TriggerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from starlette.types import Receive, Scope, Send

    from .config import WebhookConfig

    Answer = Callable[[Request], Awaitable[Response]]

logger = logging.getLogger(__name__)

HEAD_TIME = 10.0
"""Seconds that the head of a request may take to arrive."""
MOST_CONNECTIONS = 256
GRACE = 3.0
"""Seconds that requests have at the end; those of a webhook that was stopped need none of them."""


@asynccontextmanager
async def listening(name: str, config: WebhookConfig, path: str, answer: Answer) -> AsyncIterator[str]:
    """Let `answer` have the requests for `path` while the block runs; give the URL.

    Raises `TriggerError` when another webhook has the path, or the port cannot be had.
    """
    listener = _listener(config.host, config.port)
    listener.claim(name, path, answer)
    try:
        url = f"{await listener.start(name)}{path}"
        logger.log(logging.INFO if config.port else logging.WARNING, "%s listens at %s", name, url)
        yield url
    finally:
        await listener.leave(path)


def _listener(host: str, port: int) -> Listener:
    listeners = _LISTENERS.setdefault(asyncio.get_running_loop(), {})
    return listeners.setdefault((host, port), Listener(host, port))


class Listener:
    """Listens as long as somebody has claimed a path."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._paths: dict[str, tuple[str, Answer]] = {}
        self._changing = asyncio.Lock()
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None

    def claim(self, name: str, path: str, answer: Answer) -> None:
        """Take the path. Raises `TriggerError` when another one has it."""
        if path in self._paths:
            owner = self._paths[path][0]
            raise TriggerError(
                name, f"{path} at port {self._port} is taken by {owner}; give one of them another `path`"
            )
        self._paths[path] = (name, answer)

    async def start(self, name: str) -> str:
        """Listen, unless it does already; return the URL without a path."""
        async with self._changing:
            if self._server is None:
                self._socket = _bound(name, self._host, self._port)
                self._server = uvicorn.Server(_settings(self))
                await _start(self._server, self._socket)
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def leave(self, path: str) -> None:
        """Give the path back, and end with the last one."""
        del self._paths[path]
        async with self._changing:
            if self._paths or self._server is None or self._socket is None:
                return
            server, self._server = self._server, None
            await _stop(server, self._socket)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        request = Request(scope, receive)
        _, answer = self._paths.get(scope["path"], ("", _not_found))
        try:
            response = await answer(request)
        except ClientDisconnect:
            return
        await response(scope, receive, send)


_LISTENERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], Listener]] = WeakKeyDictionary()


async def _not_found(request: Request) -> Response:
    return JSONResponse({"error": "no webhook has this path"}, 404)


def _bound(name: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TriggerError(name, f"cannot listen at {host}, port {port}: {reason}. Choose another `port`") from None


def _settings(listener: Listener) -> uvicorn.Config:
    return uvicorn.Config(
        listener,
        http=_Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )


async def _start(server: uvicorn.Server, bound: socket.socket) -> None:
    """Start without `serve`, which would take the signals of the process, and look ten times a second for its end."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([bound])


async def _stop(server: uvicorn.Server, bound: socket.socket) -> None:
    """Let nobody in any more, and what is being answered end; `Server.shutdown` would look for that every 0.1 s."""
    state = server.server_state
    for each in server.servers:
        each.close()
    bound.close()
    for connection in list(state.connections):
        connection.shutdown()
    try:
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=GRACE)
    finally:
        for connection in list(state.connections):
            if not connection.transport.is_closing():
                connection.transport.abort()
    await asyncio.sleep(0)  # the loop closes their sockets in its next turn


class _Connection(H11Protocol):
    """A connection that is closed when the head of a request takes too long."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger.getChild("http")
        self.access_log = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does it for sockets that say they are TCP, and `create_server` makes some that do not: 40 ms an answer
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        self._watch_time()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_time()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def _watch_time(self) -> None:
        """Begin the time of a head with its first byte, and end it with its last."""
        within = self.cycle is not None and not self.cycle.response_complete
        if within and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif not within and self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_TIME, self.transport.abort)
