"""What is old enough to forget: sessions, when somebody asks for it; of the inbox what is over, by itself."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from .presence import as_it_is

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterable
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore, SessionRecord

logger = logging.getLogger(__name__)

OVER_FOR = timedelta(days=30)
"""How long what is over stays in the inbox at least: an event that is offered twice within it is handled once."""
EVENT_BYTES = 64 * 2**20
"""Data of older events that stay in the log as well."""
TRIM_EVERY = 3600.0
"""Seconds."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str) -> timedelta:
    """Return the time that `90s`, `90m`, `36h`, `30d` or `8w` says. Raises `ValueError`."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if found is None:
        raise ValueError(f"'{text}' is no time; write a number and s, m, h, d or w, such as 30d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def disposable(
    records: Iterable[SessionRecord], *, before: datetime | None, keep: int = 0, needed: Container[str] = ()
) -> list[SessionRecord]:
    """Return the sessions that may go, the oldest first: last changed before `before`, and not among the newest `keep`.

    One that runs, and one in `needed`, stays.
    """
    newest_first = sorted(records, key=lambda record: (record.updated, record.session_id), reverse=True)
    return [
        record
        for record in reversed(newest_first[keep:])
        if as_it_is(record).status != "running"
        and record.session_id not in needed
        and (before is None or record.updated < before)
    ]


@asynccontextmanager
async def kept_small(store: DurableStore, clock: Clock) -> AsyncIterator[None]:
    """Trim the inbox at once and then every hour while the block runs; a failure is logged and changes nothing."""
    task = asyncio.create_task(_trimming(store, clock), name="retention")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _trimming(store: DurableStore, clock: Clock) -> None:
    while True:
        try:
            await store.trim(before=clock.now() - OVER_FOR, event_bytes=EVENT_BYTES)
        except Exception as error:
            logger.warning("old deliveries and events could not be forgotten: %s", error)
        await clock.sleep(TRIM_EVERY)
