"""Listen for browsers: the page runs in the caller's event loop, and takes over no signals."""

from __future__ import annotations

import os
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError
from amplifier_core.process_forks import close_in_forks
from amplifier_foundation.paths import data_home
from amplifier_trigger_webhook.connections import start_server, stop_server

from .application import Application
from .guard import Guard
from .running import noted
from .signing import Signer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .config import PageConfig
    from .desk import Desk


class PortTaken(AmplifierError, OSError):
    """Nothing can listen at this address."""


def make_link(address: str) -> str:
    """Return an address of the page that lets one browser in, once."""
    return f"{address}/?token={Signer(data_home() / 'dashboard').make_link(time.time())}"


def end_logins() -> None:
    """Log all browsers out, and end all links, also those of running pages."""
    Signer(data_home() / "dashboard").end_all()


@asynccontextmanager
async def serving(desk: Desk, config: PageConfig, *, option: str = "--port") -> AsyncIterator[str]:
    """Serve the page while the block runs; give its address. `option` is where a person chooses the port.

    Raises `PortTaken`, `PageConfigError`.
    """
    bound = _bind(config.host, config.port, option)
    port = bound.getsockname()[1]
    application = Application(desk, Guard(config, port, Signer(data_home() / "dashboard")))
    tls = {"ssl_certfile": config.tls_cert, "ssl_keyfile": config.tls_key} if config.tls_cert else {}
    async with desk.changes.following(desk.store), desk.talks.running():
        server = await start_server(application, bound, **tls)
        try:
            address = address_of(config, port)
            with noted(address):
                yield address
        finally:
            application.close()
            await stop_server(server, bound)


def address_of(config: PageConfig, port: int) -> str:
    """Return the address of the page at a port."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{config.scheme}://{host}:{port}"


def is_free(config: PageConfig) -> bool:
    """Return whether something can listen at the page's address now."""
    try:
        _bind(config.host, config.port, "").close()
    except PortTaken:
        return False
    return True


def _bind(host: str, port: int, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return close_in_forks(socket.create_server((host, port), family=family))
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        remedy = f"Choose another with {option}; 0 takes any"
        raise PortTaken(f"cannot listen at {host}, port {port}: {reason}. {remedy}") from None
