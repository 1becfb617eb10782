"""Renew the claims of one worker while their sessions run."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable
from amplifier_core.frozen import slotted

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery

    from .state import Engine

logger = logging.getLogger(__name__)


@slotted
class Renewing:
    """Renews one claim at a time, in a task that goes on from one to the next: most claims end before their first turn.

    A claim that cannot be kept cancels its attempt, and `failure` says why. On a shared store each claim has its own
    task: it also ends the work in time when the store does not answer.
    """

    engine: Engine
    failure: Exception | None = None
    _delivery: Delivery | None = None
    _attempt: asyncio.Task[None] | None = None
    _due: float = 0.0
    """When to renew, in seconds of the monotonic clock."""
    _task: asyncio.Task[None] | None = None

    def begin(self, delivery: Delivery, attempt: asyncio.Task[None], asked: float) -> None:
        """Renew a claim from now on; `asked` is when it was asked for, in seconds of the monotonic clock."""
        self._delivery, self._attempt, self.failure = delivery, attempt, None
        self._due = self.engine.clock.monotonic() + self.engine.lease / 3
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep(asked))

    def end(self) -> None:
        """Renew this claim no more."""
        self._delivery = self._attempt = None
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
        while (delivery := self._delivery) is not None:
            try:
                if member is not None:
                    from .hosts.claims import keep_claim

                    await keep_claim(member, delivery, asked)
                await clock.sleep(self._due - clock.monotonic())
                if self._delivery is not None and clock.monotonic() >= self._due:
                    await self._renew(delivery := self._delivery)
            except Exception as error:
                # A claim that has ended meanwhile cannot be renewed; the next one goes on.
                if self._delivery is delivery and self._attempt is not None and not self._attempt.done():
                    self.failure = error
                    self._attempt.cancel()
                    return

    async def _renew(self, delivery: Delivery) -> None:
        try:
            await self.engine.store.renew(delivery, lease=self.engine.lease, now=self.engine.clock.now())
        except StoreUnavailable as error:  # the lease holds for two more tries
            logger.warning("the claim on %s was not renewed: %s", delivery.delivery_id, error)
        if self._delivery is delivery:
            self._due = self.engine.clock.monotonic() + self.engine.lease / 3
