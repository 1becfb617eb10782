"""Run one server for each host and port; webhooks share it by path.

A webhook listens before its server is there: the system keeps connections until the server accepts them. The server and
its libraries are loaded in a thread, at the first connection or once the start of the program is over.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from amplifier_core.errors import TriggerError
from amplifier_core.process_forks import close_in_forks

from .trigger import url_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import uvicorn

    from .application import Respond
    from .config import WebhookConfig

    Fail = Callable[[Exception], None]

logger = logging.getLogger(__name__)

SERVER_DELAY = 1.0
"""Seconds until the server is loaded without a connection."""


@asynccontextmanager
async def listen(name: str, config: WebhookConfig, path: str, respond: Respond, fail: Fail) -> AsyncIterator[str]:
    """Pass the requests for `path` to `respond` while the block runs; give the URL.

    `fail` gets the error of a server that cannot be started. Raises `TriggerError` if another webhook has the path, or
    the port is not free.
    """
    listeners = _LISTENERS.setdefault(asyncio.get_running_loop(), {})
    listener = listeners.setdefault((config.host, config.port), Listener(config.host, config.port))
    listener.claim(name, path, respond, fail)
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
        self._owners: dict[str, tuple[str, Fail]] = {}
        self._paths: dict[str, Respond] = {}
        self._changing = asyncio.Lock()
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        """The start of the server. Before it is done, connections wait in the socket."""

    def claim(self, name: str, path: str, respond: Respond, fail: Fail) -> None:
        """Take the path. Raises `TriggerError` if another webhook has it."""
        if path in self._owners:
            owner, _ = self._owners[path]
            raise TriggerError(
                name, f"{path} at port {self._port} is taken by {owner}; give one of them another `path`"
            )
        self._owners[path], self._paths[path] = (name, fail), respond

    async def start(self, name: str) -> str:
        """Listen, unless that was begun and goes well; return the URL without a path."""
        async with self._changing:
            if self._socket is None:
                self._socket = self._bind(name)
            if self._starting is None or (self._starting.done() and self._server is None):  # it may have failed before
                self._starting = asyncio.create_task(self._start_server(self._socket))
            host, port = self._socket.getsockname()[:2]
        return url_of(host, port)

    async def leave(self, path: str) -> None:
        """Give the path back; the last one ends the server."""
        del self._owners[path], self._paths[path]
        async with self._changing:
            if self._owners or self._socket is None or self._starting is None:
                return
            bound, self._socket = self._socket, None
            self._starting.cancel()
            await asyncio.wait([self._starting])
            server, self._server = self._server, None
            if server is None:
                bound.close()
                return
            from .connections import stop_server

            await stop_server(server, bound)

    async def _start_server(self, bound: socket.socket) -> None:
        """Start the server when it is needed; an error is for all webhooks that share it."""
        try:
            await _wait_for_connection(bound)
            await asyncio.to_thread(import_module, f"{__package__}.application")
            from .application import Application, start_server

            self._server = await start_server(Application(self._paths), bound)
        except Exception as error:
            for _, fail in self._owners.values():
                fail(error)

    def _bind(self, name: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return close_in_forks(socket.create_server((self._host, self._port), family=family))
        except OSError as error:
            reason = error.strerror or str(error)
            raise TriggerError(
                name, f"cannot listen at {self._host}, port {self._port}: {reason}. Choose another `port`"
            ) from None


async def _wait_for_connection(bound: socket.socket) -> None:
    """Wait until a connection is there to be accepted, but not longer than `SERVER_DELAY`."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(bound, arrived.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVER_DELAY):
                await arrived.wait()
    finally:
        loop.remove_reader(bound)


_LISTENERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], Listener]] = WeakKeyDictionary()
