"""Run one server for each host and port; webhooks share it by path."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from amplifier_core.errors import TriggerError
from amplifier_core.process_forks import close_in_forks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from starlette.types import Receive, Scope, Send

    from .config import WebhookConfig

    Answer = Callable[[Request], Awaitable[Response]]

logger = logging.getLogger(__name__)

HEAD_TIME = 10.0
"""Seconds until the head of a request must have arrived."""
MOST_CONNECTIONS = 256
BACKLOG = 64
"""Connections accepted in one turn of the event loop: those above `MOST_CONNECTIONS` are closed before the next."""
GRACE = 3.0
"""Seconds for open requests at the end; a stopped webhook has answered its own already."""


@asynccontextmanager
async def listen(name: str, config: WebhookConfig, path: str, answer: Answer) -> AsyncIterator[str]:
    """Pass the requests for `path` to `answer` while the block runs; give the URL.

    Raises `TriggerError` if another webhook has the path, or the port is not free.
    """
    listeners = _LISTENERS.setdefault(asyncio.get_running_loop(), {})
    listener = listeners.setdefault((config.host, config.port), Listener(config.host, config.port))
    listener.claim(name, path, answer)
    try:
        url = f"{await listener.start(name)}{path}"
        logger.log(logging.INFO if config.port else logging.WARNING, "%s listens at %s", name, url)
        yield url
    finally:
        await listener.leave(path)


class Listener:
    """A server at one host and port; it runs from the first claimed path to the last one."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._paths: dict[str, tuple[str, Answer]] = {}
        self._changing = asyncio.Lock()
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None

    def claim(self, name: str, path: str, answer: Answer) -> None:
        """Take the path. Raises `TriggerError` if another webhook has it."""
        if path in self._paths:
            owner = self._paths[path][0]
            raise TriggerError(
                name, f"{path} at port {self._port} is taken by {owner}; give one of them another `path`"
            )
        self._paths[path] = (name, answer)

    async def start(self, name: str) -> str:
        """Start the server if it does not run; return the URL without a path."""
        async with self._changing:
            if self._server is None:
                self._socket = self._bind(name)
                self._server = await self._start(self._socket)
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def leave(self, path: str) -> None:
        """Give the path back; the last one ends the server."""
        del self._paths[path]
        async with self._changing:
            if self._paths or self._server is None or self._socket is None:
                return
            server, self._server = self._server, None
            await self._stop(server, self._socket)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application."""
        request = Request(scope, receive)
        _, answer = self._paths.get(scope["path"], ("", None))
        try:
            response = await answer(request) if answer else JSONResponse({"error": "no webhook has this path"}, 404)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    def _bind(self, name: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return close_in_forks(socket.create_server((self._host, self._port), family=family))
        except OSError as error:
            reason = error.strerror or str(error)
            raise TriggerError(
                name, f"cannot listen at {self._host}, port {self._port}: {reason}. Choose another `port`"
            ) from None

    async def _start(self, bound: socket.socket) -> uvicorn.Server:
        """Start a server without `Server.serve`: that takes over the signals of the process, and polls for its end."""
        config = uvicorn.Config(
            self,
            http=_Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
        )
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup([bound])
        return server

    @staticmethod
    async def _stop(server: uvicorn.Server, bound: socket.socket) -> None:
        """Refuse new connections, and wait for open requests; `Server.shutdown` would poll for them every 0.1 s."""
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


_LISTENERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], Listener]] = WeakKeyDictionary()


class _Connection(H11Protocol):
    """A connection with a time limit for the head of a request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger.getChild("http")
        self.access_log = False
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio skips this for the sockets of `create_server`, as they do not name TCP: it would cost 40 ms an answer
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waits_since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()
        self._limit_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    @property
    def _is_unfinished(self) -> bool:
        """Whether it has sent no whole request since its last answer."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _make_room(self) -> None:
        """Close the connection that is unfinished longest, of the address with the most of them.

        Whoever holds all places, others send their requests; one without a whole request cannot hold its place.
        """
        unfinished = [
            each
            for each in self.connections
            if isinstance(each, _Connection) and each._is_unfinished and not each.transport.is_closing()
        ]
        addresses = Counter(each.client and each.client[0] for each in unfinished)
        unfinished.sort(key=lambda each: (-addresses[each.client and each.client[0]], each._waits_since, each is self))
        unfinished[0].transport.abort()

    def _limit_head(self) -> None:
        """Start the time limit with the first byte of a head, and end it with the last."""
        within = self.cycle is not None and not self.cycle.response_complete
        if within and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif not within and self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_TIME, self.transport.abort)
