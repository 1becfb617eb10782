"""Listen for browsers: the page runs in the caller's event loop, and takes over no signals."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn

from amplifier_core.errors import AmplifierError
from amplifier_core.process_forks import close_in_forks

from .application import make_application
from .guard import Guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .desk import Desk

PORT = 8790
"""The port, unless another is asked for: links into the page stay good."""
GRACE = 1.0
"""Seconds for open answers at the end; live pages come back by themselves."""


class PortTaken(AmplifierError, OSError):
    """Nothing can listen at this address."""


@asynccontextmanager
async def serving(desk: Desk, host: str = "127.0.0.1", port: int = PORT) -> AsyncIterator[str]:
    """Serve the page while the block runs; give its address, with the token. Raises `PortTaken`."""
    bound = _bind(host, port)
    port = bound.getsockname()[1]
    guard = Guard(port)
    config = uvicorn.Config(
        make_application(desk, guard),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    async with desk.changes.following(desk.store), desk.talks.running():
        await server.startup([bound])
        try:
            yield f"http://{host}:{port}/?token={guard.token}"
        finally:
            await _stop(server, bound)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return close_in_forks(socket.create_server((host, port), family=family))
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise PortTaken(
            f"cannot listen at {host}, port {port}: {reason}. Choose another with --port; 0 takes any"
        ) from None


async def _stop(server: uvicorn.Server, bound: socket.socket) -> None:
    """Refuse new connections, and end the open ones."""
    state = server.server_state
    for each in server.servers:
        each.close()
    bound.close()
    for task in state.tasks:
        task.cancel()
    if state.tasks:
        await asyncio.wait(state.tasks, timeout=GRACE)
    for connection in list(state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)  # the loop closes their sockets in its next turn
