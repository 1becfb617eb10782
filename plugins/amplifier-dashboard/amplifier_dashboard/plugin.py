"""Offer the page as a server beside `up`: `amplifier up --serve dashboard`."""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError
from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.hookspecs import Register
    from amplifier_foundation.hookspecs import Serve, ServerContext

    from .config import PageConfig

OPTION = "the setting servers.dashboard.port"
LOOK_EVERY = 1.0
"""Seconds between two looks whether the process with the page has ended."""
PATIENCE = 5.0
"""Seconds in which a process that has taken the port for the page is listed among those that run."""
LONGEST_START = 15.0
"""Seconds more while one of those does not answer."""


class PageEnded(AmplifierError, RuntimeError):
    """The page of another process has ended, so its address is free."""


@hookimpl
def amplifier_register_server(register: Register[Serve]) -> None:
    """Register the page."""
    register("dashboard", serve)


@asynccontextmanager
async def serve(config: Mapping[str, Any], context: ServerContext) -> AsyncIterator[str]:
    """Serve the page while the block runs; give its address. Raises `PageConfigError`, `PortTaken`, `PageEnded`.

    The address has no token: it may go to a log. `amplifier dashboard --link` makes a link. Where another process with
    this data folder serves the page already, the address is that one. When its process ends, `PageEnded` ends the
    block, and the page can be served here.
    """
    from asyncio import sleep, to_thread

    from amplifier_foundation.operations.acting import person_here
    from amplifier_foundation.paths import find_project

    from .config import read_config
    from .desk import Desk
    from .server import PortTaken, serving

    checked = read_config(config)
    desk = Desk(context.store, context.plugins, person_here("dashboard").name, find_project(), checked.read_only)
    async with AsyncExitStack() as stack:
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                address = await stack.enter_async_context(serving(desk, checked, option=OPTION))
                break
            except PortTaken:
                found = await to_thread(_find_page, checked)
                if found:
                    address = found
                    await stack.enter_async_context(_following(checked))
                    break
                if time.monotonic() > ends + (0.0 if found is None else LONGEST_START):
                    raise
            await sleep(LOOK_EVERY / 4)  # the process that has the port may be starting, or ending
        yield address


def _find_page(config: PageConfig) -> str | None:
    """Return the address of the page that another process of this data folder serves, with the process.

    '' while one does not answer, as at its start.
    """
    from amplifier_core.errors import SessionConflict
    from amplifier_foundation.background.asking import ask
    from amplifier_foundation.sessions.lock import running_owners

    from .server import address_of

    own, found = address_of(config, config.port), None
    for owner in running_owners():
        if owner.get("pid") != os.getpid():
            try:
                if dict(ask(owner, "servers")).get("dashboard") == own:
                    return f"{own}, served by process {owner['pid']}"
            except SessionConflict:
                found = ""
    return found


@asynccontextmanager
async def _following(config: PageConfig) -> AsyncIterator[None]:
    """End the block with `PageEnded` as soon as the address of the page is free."""
    from asyncio import TaskGroup, sleep

    from .server import is_free

    async def watch() -> None:
        while True:
            await sleep(LOOK_EVERY)
            if is_free(config):
                raise PageEnded("the process that served the page has ended; this one serves it now")

    async with TaskGroup() as group:
        watching = group.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
