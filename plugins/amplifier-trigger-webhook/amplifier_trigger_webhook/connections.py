"""Serve an application: with time limits for the heads of requests, and places that no caller can hold."""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from amplifier_core.listening import close_server

from .refused_requests import RefusedRequests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)
_http_logger = logger.getChild("http")
_http_logger.setLevel(logging.ERROR)  # uvicorn warns of each request that is no HTTP, and of each wish for a WebSocket

HEAD_TIME = 10.0
"""Seconds until the head of a request must have arrived."""
MOST_CONNECTIONS = 256
"""Connections of a server. All servers have at most as many as a fourth of the files that the process may open."""
BACKLOG = 64
"""Connections accepted in one turn of the event loop, at most a sixteenth of the files: those above
`MOST_CONNECTIONS` are closed before the next."""
GRACE = 3.0
"""Seconds for open requests at the end; a stopped webhook has answered its own already."""
REASONS = {
    400: "it was no HTTP, or the end of its body was unclear: a sender with https needs a proxy that decrypts, and "
    "a proxy sends either Content-Length or, with HTTP/1.1, Transfer-Encoding: chunked"
}
"""What an answer of the server itself means, with the remedy."""


class _Config(uvicorn.Config):
    refused: RefusedRequests
    """The requests refused before an application gets them."""


async def start_server(application: ASGIApp, bound: socket.socket, **options: Any) -> uvicorn.Server:
    """Start a server at a bound socket; `options` are those of `uvicorn.Config`.

    `Server.serve` would take over the signals of the process, and poll for its end.
    """
    config = _Config(
        application,
        http=_Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=int(min(BACKLOG, _share_of_files(16))),
        **options,
    )
    host, port = bound.getsockname()[:2]
    config.refused = RefusedRequests(f"the server at {host}, port {port},", REASONS)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup([bound])
    return server


async def stop_server(server: uvicorn.Server, bound: socket.socket) -> None:
    """Refuse new connections, and wait for open requests; `Server.shutdown` would poll for them every 0.1 s."""
    state = server.server_state
    for each in server.servers:
        await close_server(each)
    bound.close()
    for connection in list(state.connections):
        connection.shutdown()
    if isinstance(server.config, _Config):
        server.config.refused.close()
    try:
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=GRACE)
    finally:
        for connection in list(state.connections):
            if not connection.transport.is_closing():
                connection.transport.abort()
    await asyncio.sleep(0)  # the loop closes their sockets in its next turn


def _share_of_files(part: int) -> float:
    """Return one part in `part` of the files that the process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if files == resource.RLIM_INFINITY else max(1, files // part)


_open: set[asyncio.Protocol] = set()
"""The connections of all servers of this process."""


class _Parser(h11.Connection):
    """Reads requests with a clear end: a proxy before the server may see another one (RFC 9112, 6.1)."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the length of the body is given twice, or by a version without chunks")
        return event


class _Connection(H11Protocol):
    """A connection with a time limit for the head of a request."""

    config: _Config

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Parser(h11.SERVER)
        self.logger = _http_logger
        self.access_log = False
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio skips this for the sockets of `create_server`, as they do not name TCP: it would cost 40 ms an answer
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waits_since = self.loop.time()
        _open.add(self)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room(self.connections)
        elif len(_open) > _share_of_files(4):
            self._make_room(_open)
        self._limit_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _open.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self.config.refused.note(400)
        if self.cycle is not None:  # its application would answer a second time
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer is on its way, or was given
            no_body = [("Content-Length", "0"), ("Connection", "close")]  # an answer to HEAD must have none
            for event in (h11.Response(status_code=400, headers=no_body, reason=b"Bad Request"), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _is_unfinished(self) -> bool:
        """Whether it has sent no whole request since its last answer."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _make_room(self, connections: Iterable[asyncio.Protocol]) -> None:
        """Close the one of them that is unfinished longest, of the address with the most of them.

        Whoever holds all places, others send their requests; one without a whole request cannot hold its place.
        """
        unfinished = [
            each
            for each in connections
            if isinstance(each, _Connection) and each.loop is self.loop and each._is_unfinished
            if not each.transport.is_closing()
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
