"""Look after the store while `amplifier up` runs: notice damage, and back it up once a day."""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING

from amplifier_core.cancellation import own_failure
from amplifier_core.errors import StoreError
from amplifier_core.raised import describe_raised
from amplifier_core.storage import StoreAdministration

from .tasks import run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore

logger = logging.getLogger(__name__)

LOOK_EVERY = 60.0
"""Seconds."""
BACK_UP_EVERY = timedelta(days=1)
KEPT = 7
"""Backups."""

_backing_up = Lock()


@asynccontextmanager
async def looking_after(
    store: DurableStore, clock: Clock, report: Callable[[str], None] = lambda problem: None
) -> AsyncIterator[None]:
    """Look at the store every minute, and back it up every day, while the block runs.

    A store damaged, replaced or removed meanwhile is logged as an error, once. `report` gets the problem of the store
    after each look, '' for none. Does nothing for a storage without an administration.
    """
    administration = getattr(store, "administration", None)
    if not isinstance(administration, StoreAdministration):
        yield
        return
    async with run_beside(_look_regularly(administration, clock, report), "store upkeep"):
        yield


async def _look_regularly(administration: StoreAdministration, clock: Clock, report: Callable[[str], None]) -> None:
    logged = ""
    while True:
        await clock.sleep(LOOK_EVERY)
        failure: Exception | None = None
        try:
            await asyncio.to_thread(administration.probe)
            await asyncio.to_thread(back_up_if_due, administration, clock.now())
        except BaseException as raised:
            failure = own_failure(raised)
        problem = "" if failure is None else str(failure) if isinstance(failure, OSError) else describe_raised(failure)
        if problem not in ("", logged):
            logger.error("%s", problem)
        logged, has_no_room = problem, isinstance(failure, OSError) and not isinstance(failure, StoreError)
        report("" if has_no_room else problem)  # a store without room for a backup works


def back_up_if_due(administration: StoreAdministration, now: datetime) -> None:
    """Back the store up unless there is a backup of the last day. Raises `StoreError`, `OSError`."""
    with _backing_up:  # the first purge asks for it, and so does the look of each minute
        newest = next(iter(administration.backups()), None)
        if newest is not None:
            age = now - datetime.fromtimestamp(newest.stat().st_mtime, UTC)
            if timedelta(0) <= age < BACK_UP_EVERY:  # one from the future was made by a wrong clock
                return
        place = administration.info().place
        if shutil.disk_usage(place.parent).free < 2 * administration.size()[0]:
            raise OSError(f"{place}: not backed up: the disk has no room for it. Free some space")
        administration.backup(keep=KEPT)
