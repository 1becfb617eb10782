"""Own a run: the event that began it is a delivery like those of background sessions, and its claim has an owner.

A claim has a lease and an epoch. Whoever lost the run writes nothing more: the store refuses an older epoch, and a
message at a place that is taken.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict, StaleEpoch, StoreUnavailable
from amplifier_core.triggers import TriggerEvent, TriggerType

from ..background.giving_back import give_back
from ..background.keys import RUNS, project_of_run
from ..background.tasks import keep_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Delivery, DurableStore, SessionRecord

logger = logging.getLogger(__name__)

LEASE = 60.0
"""Seconds until another host may go on with a run whose owner is silent."""


class Claim:
    """The claim of this process on a run."""

    def __init__(self, store: DurableStore, run_id: str, delivery: Delivery, clock: Clock) -> None:
        self.delivery = delivery
        self._run_id = run_id
        self._store = store
        self._clock = clock
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"

    @classmethod
    async def take(cls, store: DurableStore, record: SessionRecord, clock: Clock) -> Claim:
        """Claim a run; the caller holds the lock of its session, so an owner on this machine has ended.

        Raises `SessionConflict` when another process has just claimed it.
        """
        delivery = await find_open(store, record)
        if delivery is None:
            event = TriggerEvent(TriggerType.MANUAL, RUNS, timestamp=clock.now(), data={"run": record.session_id})
            delivery = await store.enqueue(project_of_run(record.session_id), RUNS, RUNS, event, now=clock.now())
            assert delivery is not None  # the event has no key by which it could be known
        elif delivery.state == "claimed":
            await store.release(delivery.project)
        claim = cls(store, record.session_id, delivery, clock)
        if not await claim._claim(max(clock.now(), delivery.available_at)):
            raise SessionConflict(record.session_id, f"another process goes on with the run {record.session_id}")
        return claim

    async def _claim(self, now: datetime) -> bool:
        claimed = await self._store.claim(
            self.delivery.project,
            self.delivery.queue,
            owner=self._owner,
            lease=LEASE,
            session_id=self._run_id,
            now=now,
        )
        if claimed is not None:
            self.delivery = claimed
        return claimed is not None

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew the lease while the block runs."""
        async with keep_beside(self._renew, f"renewal of {self._run_id}", clock=self._clock):
            yield

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(LEASE / 3)
            try:
                await self._store.renew(self.delivery, lease=LEASE, now=self._clock.now())
            except StaleEpoch:
                logger.warning("another process goes on with the run %s", self._run_id)
                return
            except StoreUnavailable as error:
                logger.warning("the claim on the run %s was not renewed: %s", self._run_id, error)

    async def finish(self, emits: Sequence[SessionEvent], changes: Mapping[str, Any]) -> list[SessionEvent]:
        """End the run: its record and its last events are written together. Raises `StaleEpoch`."""
        return await self._store.commit(self.delivery, emits=emits, session=changes)

    async def put_back(self, reason: str, due: datetime, changes: Mapping[str, Any]) -> None:
        """Give the run back, for a later process to go on with. Raises `StaleEpoch`."""
        await give_back(self._store, self.delivery, self._clock, reason, due, counted=False, session=changes)


async def find_open(store: DurableStore, record: SessionRecord) -> Delivery | None:
    """Return the unfinished delivery of a run, of its own queue or of a background session's; None: it has ended."""
    for each in await store.deliveries(session_id=record.session_id, limit=1):
        if each.state in ("pending", "claimed"):
            return each
    waiting = await store.deliveries(project=project_of_run(record.session_id), queue=RUNS, state="pending", limit=1)
    return waiting[0] if waiting else None  # a kill came between its first two transactions
