"""Serve callers over HTTP on this machine; those at stdin and stdout import nothing of it."""

from __future__ import annotations

import hmac
import logging
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from .server import end_on_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp.server.lowlevel import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

LONGEST_BODY = 4 * 1024 * 1024
"""Bytes of the largest request."""
GRACE = 1
"""Seconds for open requests after a signal."""


async def serve_http(server: Server[Any], port: int, token: str, announce: Callable[[str], None]) -> int:
    """Serve on 127.0.0.1 until a signal asks for the end, and return the exit code.

    `announce` gets the address once it listens.

    A request needs `Authorization: Bearer TOKEN`, and the Host, and the Origin if there is one, of this machine. Raises
    `OSError` for a port that is taken.
    """
    logging.getLogger("mcp.server.streamable_http").addFilter(_is_no_disconnect)
    app = server.streamable_http_app(max_request_body_size=LONGEST_BODY)
    config = uvicorn.Config(
        _TokenCheck(app, token),
        http=_Connection,
        ws="none",
        log_config=None,
        log_level=logging.ERROR,  # uvicorn warns of each request that is no HTTP, and of each wish for a WebSocket
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    http = _HttpServer(config)
    listening = socket.create_server(("127.0.0.1", port))
    async with end_on_signal(http.stop) as codes:
        announce(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
        await http.serve(sockets=[listening])
    return codes[0]


def _is_no_disconnect(record: logging.LogRecord) -> bool:
    """Return whether a line of the log tells more than a client's end in the middle of its request."""
    return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect))


class _Connection(H11Protocol):
    """A connection that ends at what is no HTTP, without a word: uvicorn would answer after the application."""

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


class _HttpServer(uvicorn.Server):
    """A server that leaves signals to its program: uvicorn would end the process by the signal once more."""

    def stop(self) -> None:
        """End, and wait for no turn: it may take minutes, and the store keeps what it did."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class _TokenCheck:
    """An application that refuses every request without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 401,
                "headers": [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")],
            }
        )
        await send({"type": "http.response.body", "body": b""})

    def _is_allowed(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)
