"""Renew the claims of one worker while their sessions run."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from amplifier_core.cancellation import own_failure
from amplifier_core.errors import StoreUnavailable
from amplifier_core.frozen import slotted

if TYPE_CHECKING:
    from .state import Engine, Running

logger = logging.getLogger(__name__)


@slotted
class Renewing:
    """Renews one claim at a time, in a task that goes on from one to the next: most claims end before their first turn.

    A claim that cannot be kept cancels its attempt, and its `lost` says why. On a shared store each claim has its own
    task: it also ends the work in time when the store does not answer.
    """

    engine: Engine
    _running: Running | None = None
    _due: float = 0.0
    """When to renew, in seconds of the monotonic clock."""
    _task: asyncio.Task[None] | None = None

    def begin(self, running: Running, asked: float) -> None:
        """Renew a claim from now on; `asked` is when it was asked for, in seconds of the monotonic clock."""
        self._running = running
        self._due = self.engine.clock.monotonic() + self.engine.lease / 3
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep(asked))

    def end(self) -> None:
        """Renew this claim no more."""
        self._running = None
        if self.engine.member is not None:
            self.rest()

    def rest(self) -> None:
        """End the task until the next claim: an idle worker waits for nothing but work."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def stop(self) -> None:
        """End the task, and wait for its end."""
        task = self._task
        self.rest()
        if task is not None:
            await asyncio.wait({task})

    async def _keep(self, asked: float) -> None:
        clock, member = self.engine.clock, self.engine.member
        while (running := self._running) is not None:
            try:
                if member is not None:
                    from .hosts.claims import keep_claim

                    await keep_claim(member, running, asked)
                await clock.sleep(self._due - clock.monotonic())
                if self._running is not None and clock.monotonic() >= self._due:
                    await self._renew(running := self._running)
            except BaseException as raised:
                error = own_failure(raised)
                if self._running is not running:
                    continue  # a claim that has ended cannot be renewed; the next one goes on
                if not (running.task.done() or running.is_stored):
                    running.lost = error
                    running.task.cancel()
                return

    async def _renew(self, running: Running) -> None:
        delivery = running.delivery
        try:
            await self.engine.store.renew(delivery, lease=self.engine.lease, now=self.engine.clock.now())
        except StoreUnavailable as error:  # the lease holds for two more tries
            logger.warning("the claim on %s was not renewed: %s", delivery.delivery_id, error)
        if self._running is running:
            self._due = self.engine.clock.monotonic() + self.engine.lease / 3
