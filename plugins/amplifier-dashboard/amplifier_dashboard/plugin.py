"""Offer the page as a server beside `up`: `amplifier up --serve dashboard`."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.hookspecs import Register
    from amplifier_foundation.hookspecs import Serve, ServerContext

    from .config import PageConfig
    from .desk import Desk

OPTION = "the setting servers.dashboard.port"
LOOK_EVERY = 1.0
"""Seconds between two looks whether the process with the page has ended."""


@hookimpl
def amplifier_register_server(register: Register[Serve]) -> None:
    """Register the page."""
    register("dashboard", serve)


@asynccontextmanager
async def serve(config: Mapping[str, Any], context: ServerContext) -> AsyncIterator[str]:
    """Serve the page while the block runs; give its address. Raises `PageConfigError`, `PortTaken`.

    The address has no token: it may go to a log. `amplifier dashboard --link` makes a link. Where another process with
    this data folder serves the page already, it is that one, and this process serves it when that has ended.
    """
    from asyncio import to_thread

    from amplifier_foundation.background.tasks import run_beside
    from amplifier_foundation.operations.acting import person_here
    from amplifier_foundation.paths import find_project

    from .config import read_config
    from .desk import Desk
    from .server import PortTaken, serving

    checked = read_config(config)
    desk = Desk(context.store, context.plugins, person_here("dashboard").name, find_project(), checked.read_only)
    async with AsyncExitStack() as stack:
        try:
            address = await stack.enter_async_context(serving(desk, checked, option=OPTION))
        except PortTaken:
            if (served := await to_thread(_find_page, checked)) is None:
                raise
            address = served
            await stack.enter_async_context(run_beside(_take_over(desk, checked), "dashboard of another process"))
        yield address


def _find_page(config: PageConfig) -> str | None:
    """Return the address of the page that another process of this data folder serves, with the process."""
    from amplifier_core.errors import SessionConflict
    from amplifier_foundation.background.asking import ask
    from amplifier_foundation.sessions.lock import running_owners

    from .server import address_of

    own = address_of(config, config.port)
    for owner in running_owners():
        with suppress(SessionConflict):
            if owner.get("pid") != os.getpid() and dict(ask(owner, "servers")).get("dashboard") == own:
                return f"{own}, served by process {owner['pid']}"
    return None


async def _take_over(desk: Desk, config: PageConfig) -> None:
    """Serve the page as soon as its address is free."""
    from asyncio import Event, sleep

    from .server import PortTaken, serving

    while True:
        await sleep(LOOK_EVERY)
        with suppress(PortTaken):
            async with serving(desk, config, option=OPTION):
                await Event().wait()
