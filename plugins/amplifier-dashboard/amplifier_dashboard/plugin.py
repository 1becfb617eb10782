"""Offer the page as a server beside `up`: `amplifier up --serve dashboard`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.hookspecs import Register
    from amplifier_foundation.hookspecs import Serve, ServerContext


@hookimpl
def amplifier_register_server(register: Register[Serve]) -> None:
    """Register the page."""
    register("dashboard", serve)


@asynccontextmanager
async def serve(config: Mapping[str, Any], context: ServerContext) -> AsyncIterator[str]:
    """Serve the page while the block runs; give its address. Raises `PageConfigError`, `PortTaken`.

    The address has no token: it may go to a log. `amplifier dashboard --link` makes a link.
    """
    from amplifier_foundation.operations.acting import person_here
    from amplifier_foundation.paths import find_project

    from .config import read_config
    from .desk import Desk
    from .server import serving

    checked = read_config(config)
    desk = Desk(context.store, context.plugins, person_here("dashboard").name, find_project(), checked.read_only)
    async with serving(desk, checked) as address:
        yield address
