"""Run the transports of the settings beside the background sessions, and connect again after each failure."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from amplifier_core.cancellation import count_cancellations, own_failure, run_guarded
from amplifier_core.errors import AmplifierError
from amplifier_core.process_forks import close_in_forks
from amplifier_core.raised import describe_raised
from amplifier_core.shared_stores import ReceivingStore
from amplifier_core.utils.secrets import redact_text

from ..bundle.credentials import expand_references
from ..paths import data_home, make_private
from .inbox import Inbox
from .outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore

    from ..events import EventRouter
    from ..hookspecs import Transport, TransportFactory
    from . import Route

logger = logging.getLogger(__name__)

OPENING, CLOSING, LEAVING = 15.0, 5.0, 3.0
"""Seconds for a transport to connect, to end its connection, and to publish the last events of a process that ends."""
LONGEST_PAUSE = 30.0
"""Seconds between two attempts to connect, at the most."""
STEADY = 1.0
"""Seconds that a connection lasts until an earlier problem counts as over."""
LOOK_EVERY = 1.0
"""Seconds between two looks whether the process that carries events has ended."""


class CannotReceive(AmplifierError):
    """The storage keeps no events of other sites."""

    def __init__(self) -> None:
        super().__init__("this storage takes in no events of other sites. Use another one, or leave out subscribe")


class Carrier:
    """Carries events between this site and others, over one connection after the other.

    `report` gets the name of its connection and its problem, '' for none. A failure ends nothing: it is tried again.
    """

    def __init__(
        self,
        route: Route,
        factory: TransportFactory,
        store: DurableStore,
        router: EventRouter,
        clock: Clock,
        report: Callable[[str, str], None],
    ) -> None:
        self.component = f"transport {route.name}"
        self._route = route
        self._factory = factory
        self._store = store
        self._router = router
        self._clock = clock
        self._report = partial(report, f"connection of {self.component}")  # what runs it reports the component itself
        self._outbox = Outbox(route, store, self._note_carried)
        self._random = Random()
        self._failures = 0
        """Attempts since a connection has worked."""
        self._logged = ""

    async def begin(self, *, is_alone: bool) -> None:
        """Begin to publish with the next event. With `is_alone`, no other host publishes: the store keeps the place.

        A failure is left to `run`, which reports it and tries again.
        """
        with suppress(Exception):
            await run_guarded(self._outbox.begin())
            if is_alone:
                with hold_route(self._route.name) as is_held:
                    if is_held:
                        await run_guarded(self._outbox.load())

    async def run(self) -> None:
        """Carry events until cancelled, or wait while another process of this data folder does.

        What is in the log then is published, if the transport is connected.
        """
        while True:
            with hold_route(self._route.name) as is_held:
                while is_held:
                    await self._try_once()
            await self._clock.sleep(LOOK_EVERY)

    async def run_led(self) -> None:
        """Carry events while this host leads: a problem of the connection is none of its own after that."""
        try:
            await self.run()
        finally:
            self._report("")

    async def _try_once(self) -> None:
        """Carry events until something fails; report that, and pause.

        The pauses grow, also for a broker that takes connections and ends each of them at once. They begin anew after a
        connection that has lasted for `STEADY`, or has carried a message.
        """
        [ended] = await asyncio.gather(run_guarded(self._carry()), return_exceptions=True)  # see `_carry`
        if ended is not None:
            failure = describe_failure(own_failure(ended))
            self._failures += 1
            await self._tell(failure)
        bound = min(LONGEST_PAUSE, 0.25 * 2.0 ** min(self._failures, 20))
        await self._clock.sleep(self._random.uniform(bound / 2, bound))

    async def _tell(self, problem: str) -> None:
        """Report a problem with the number of events that wait for its end; log a new one."""
        if problem != self._logged:
            logger.error("%s: %s", self._route.name, problem)
            self._logged = problem
        waiting = 0
        with suppress(Exception):
            waiting = await run_guarded(self._outbox.count_waiting())
        kept = f"; {waiting} events of the log wait" if waiting and self._route.publish else ""
        self._report(f"{problem}{kept}")

    def _report_namesake(self, problem: str) -> None:
        logger.error("%s: %s", self._route.name, problem)
        self._report(problem)

    def _note_carried(self) -> None:
        self._failures = 0

    async def _carry(self) -> None:
        """Open a transport, carry events, and close it.

        A group of tasks that failed leaves a cancellation behind, before Python 3.13: a task of its own tells one of
        the transport's from one of this task.
        """
        if self._route.subscribe and not isinstance(self._store, ReceivingStore):
            raise CannotReceive
        await self._outbox.load()
        transport = self._factory(await expand_references(dict(self._route.config)))
        try:
            async with asyncio.timeout(OPENING):
                await transport.open(self._route.site, self._route.subscribe)
            await self._exchange(transport)
        finally:
            with suppress(Exception):
                async with asyncio.timeout(CLOSING):
                    [ended] = await asyncio.gather(run_guarded(transport.close()), return_exceptions=True)
                    if ended is not None:
                        own_failure(ended, count_cancellations())

    async def _exchange(self, transport: Transport) -> None:
        """Publish and receive until an error, or the end of the process."""
        inbox = Inbox(self._route, self._store, self._outbox, self._clock, self._report_namesake, self._note_carried)
        try:
            async with asyncio.TaskGroup() as group:
                if self._route.publish:
                    group.create_task(run_guarded(self._outbox.run(transport, self._router)))
                group.create_task(run_guarded(inbox.run(transport, self._router)))
                if self._failures:
                    await self._clock.sleep(STEADY)
                    self._failures, self._logged = 0, ""
                if not inbox.has_reported:
                    self._report("")
        except asyncio.CancelledError:
            with suppress(Exception):
                async with asyncio.timeout(LEAVING):
                    await run_guarded(self._outbox.publish_rest(transport))
            raise


@contextmanager
def hold_route(name: str) -> Iterator[bool]:
    """Lock a route for this process while the block runs; yield False while another process holds it."""
    with (make_private(data_home() / "locks") / f"transport-{name}.lock").open("a") as file:
        os.fchmod(file.fileno(), 0o600)
        close_in_forks(file)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def describe_failure(error: BaseException) -> str:
    """Return an error of a transport in words, without secrets."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError) and not str(error):
        return "the broker did not answer in time"
    return redact_text(describe_raised(error))
