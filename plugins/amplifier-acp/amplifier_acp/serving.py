"""Serve one editor on stdin and stdout until it closes them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from amplifier_foundation.cli import exits

from .agent import METHODS, NOTIFICATIONS
from .handshake import Handshake
from .peer import Peer
from .wire import take_stdio

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.plugins import Plugins

    from .agent import Agent
    from .peer import Handler, Params

SOON = 0.02
"""Seconds from the answer to `initialize` to the start of everything else, which the next request needs."""


def serve(load_plugins: Callable[[], Plugins], bundle: str | None) -> int:
    """Serve the editor, and return the exit code; `bundle` is that of new sessions."""
    reading, writing = take_stdio()
    return asyncio.run(Serving(load_plugins, bundle).run(reading, writing))


class Serving:
    """One editor, from its first message to its last."""

    def __init__(self, load_plugins: Callable[[], Plugins], bundle: str | None) -> None:
        self._load_plugins = load_plugins
        self._bundle = bundle
        self._handshake = Handshake()
        self._starting: asyncio.Task[Agent] | None = None
        self._stack = AsyncExitStack()
        requests = {name: self._later(attribute) for name, attribute in METHODS.items() if name not in NOTIFICATIONS}
        requests |= {"initialize": self._initialize, "authenticate": self._handshake.authenticate}
        self.peer = Peer(requests, {name: self._later(METHODS[name]) for name in NOTIFICATIONS})

    async def run(self, reading: int, writing: int) -> int:
        """Serve until the editor closes its end, or a signal asks for the end; then end all sessions.

        Return the exit code.
        """
        ended = asyncio.Event()
        codes = [exits.OK]

        def end(code: int) -> None:
            codes.append(code)
            ended.set()

        loop = asyncio.get_running_loop()
        for number, code in exits.BY_SIGNAL.items():
            with suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, end, code)
        async with self._stack:
            await self.peer.serve(reading, writing, ended.wait())
        self.peer.close()
        return codes[-1]

    def _later(self, attribute: str) -> Handler:
        """Return a handler that waits for the agent."""

        async def handle(params: Params) -> Any:
            return await getattr(await asyncio.shield(self._start()), attribute)(params)

        return handle

    async def _initialize(self, params: Params) -> Any:
        answer = await self._handshake.initialize(params)
        asyncio.get_running_loop().call_later(SOON, self._start)
        return answer

    def _start(self) -> asyncio.Task[Agent]:
        if self._starting is None:
            self._starting = asyncio.create_task(self._make_agent())
        return self._starting

    async def _make_agent(self) -> Agent:
        """Load the plugins and open the store. Raises `StoreUnavailable` and the errors of the settings."""
        plugins = await asyncio.to_thread(self._prepare)
        from datetime import UTC, datetime

        from amplifier_foundation.security.trust import without_project
        from amplifier_foundation.sessions.storages import open_store
        from amplifier_foundation.settings import read_settings
        from amplifier_foundation.spawning.opening import BundleOpener

        from .agent import Agent
        from .children import Children
        from .editor_session import Surroundings
        from .failures import explain
        from .leftovers import clear_leftovers

        self.peer.explain = explain
        store = open_store(plugins, without_project(read_settings()).get("storage"))
        self._stack.push_async_callback(store.close)
        opener = BundleOpener(plugins, self._bundle)
        agent = Agent(Surroundings(self.peer, store, plugins, opener, self._handshake))
        plugins.register(Children(self.peer, self._handshake), "editor-children")
        self._stack.push_async_callback(agent.close)
        for work in (agent.watch(), clear_leftovers(store, datetime.now(UTC))):
            self._stack.push_async_callback(_cancel, asyncio.create_task(work))
        return agent

    def _prepare(self) -> Plugins:
        """Import what the first session needs, beside the event loop, and load the plugins."""

        from . import editor_session, listing, params  # noqa: F401

        return self._load_plugins()


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
