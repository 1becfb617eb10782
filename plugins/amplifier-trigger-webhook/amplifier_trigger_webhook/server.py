"""Run one server for each host and port; webhooks share it by path."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from amplifier_core.errors import TriggerError
from amplifier_core.process_forks import close_in_forks

from .connections import start_server, stop_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import uvicorn
    from starlette.types import Receive, Scope, Send

    from .config import WebhookConfig

    Answer = Callable[[Request], Awaitable[Response]]

logger = logging.getLogger(__name__)


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
                self._server = await start_server(self, self._socket)
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
            await stop_server(server, self._socket)

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


_LISTENERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], Listener]] = WeakKeyDictionary()
