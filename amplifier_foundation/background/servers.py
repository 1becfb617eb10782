"""Run servers beside `up`, and start a failed one again: the dashboard, for example."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import own_failure
from amplifier_core.errors import AmplifierError
from amplifier_core.frozen import slotted
from amplifier_core.raised import describe_raised
from amplifier_core.utils.secrets import redact_text

from ..bundle.credentials import expand_references
from .tasks import first_cause, run_apart, run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from amplifier_core.clock import Clock

    from ..hookspecs import ServerContext

logger = logging.getLogger(__name__)

STARTING = 30.0
"""Seconds for a server to start."""
ENDING = 10.0
"""Seconds for a server to end, in which its clients may leave."""
STEADY = 60.0
"""Seconds after which a server counts as working: its next failure is a first one."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two starts of a failing server, doubled each time."""


class ServerNotStarted(AmplifierError, RuntimeError):
    """A server that a person asked for did not start."""

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(f"server '{name}' did not start: {problem}. Mend that, or leave out: --serve {name}")


@slotted
class ServerHost:
    """Runs servers in the event loop of its caller; no failure of theirs reaches anybody else.

    `report` gets the component and its problem, '' for none; `note` gets news for the person.
    """

    first: Mapping[str, Mapping[str, Any]]
    """The configs of servers that a person asked for, by name."""
    later: Mapping[str, Mapping[str, Any]]
    """The configs of the others of the settings."""
    context: ServerContext
    clock: Clock
    report: Callable[[str, str], None]
    note: Callable[[str], None] = lambda text: None
    addresses: dict[str, str] = field(default_factory=dict)
    """The addresses of the servers that answer, by their names."""

    @asynccontextmanager
    async def run_first(self) -> AsyncIterator[Mapping[str, str]]:
        """Run the `first` servers while the block runs, which gets their addresses: it begins when all of them answer.

        Raises `UnknownName`, and `ServerNotStarted` for one that fails at its start.
        """
        for name in self.first:
            self.context.plugins.registry_of("server").get(name)
        async with AsyncExitStack() as stack:
            for name, config in self.first.items():
                started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                await stack.enter_async_context(self._beside(name, config, started))
                await started
            yield self.addresses

    @asynccontextmanager
    async def run_later(self) -> AsyncIterator[None]:
        """Run the other servers while the block runs; one that does not start is a problem, and is tried again."""
        async with AsyncExitStack() as stack:
            for name, config in self.later.items():
                await stack.enter_async_context(self._beside(name, config))
            yield

    def _beside(
        self, name: str, config: Mapping[str, Any], started: asyncio.Future[None] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Run one server while the block runs; one that does not end is given up, and named in the log."""
        server = f"server {name}"
        return run_beside(run_apart(self._run(name, config, started), server, ENDING), f"end of {server}")

    async def _run(self, name: str, config: Mapping[str, Any], started: asyncio.Future[None] | None = None) -> None:
        """Run one server until cancelled; a failure before `started` is the result of that, and ends this."""
        pause = FIRST_PAUSE
        while True:
            began = self.clock.monotonic()
            problem = "it has ended by itself"
            try:
                await self._serve(name, config, started)
            except BaseException as raised:  # a web server may end its program
                cause = first_cause(own_failure(raised))
                problem = redact_text(describe_raised(cause))
                if isinstance(cause, TimeoutError) and not str(cause):
                    problem = f"it does not answer after {STARTING:g} s"
                if started is not None and not started.done():
                    started.set_exception(ServerNotStarted(name, problem))
                    return
            finally:
                self.addresses.pop(name, None)
            if (task := asyncio.current_task()) is not None and task.cancelling():
                return  # the server has kept its cancellation to itself
            pause = FIRST_PAUSE if self.clock.monotonic() - began >= STEADY else pause
            logger.error("server '%s' failed, and is started again in %g s: %s", name, pause, problem)
            self.report(f"server {name}", problem)
            await self.clock.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _serve(self, name: str, config: Mapping[str, Any], started: asyncio.Future[None] | None) -> None:
        """Serve until the server fails."""
        serve = self.context.plugins.registry_of("server").get(name)
        expanded = await expand_references(dict(config))
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(STARTING):
                address = await stack.enter_async_context(serve(expanded, self.context))
            self.addresses[name] = address
            self.report(f"server {name}", "")
            self.note(f"{name}: {address}")
            if started is not None and not started.done():
                started.set_result(None)
            await asyncio.Event().wait()
