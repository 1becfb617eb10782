"""What is old enough to forget: sessions, when somebody asks for it; what nobody looks after, by itself."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from amplifier_core.durations import seconds_of

from .presence import as_it_is

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterable
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore, SessionRecord

    from .settings import Settings

logger = logging.getLogger(__name__)

OVER_FOR = timedelta(days=30)
"""How long what is over stays in the inbox at least: an event that is offered twice within it is handled once."""
EVENT_BYTES = 64 * 2**20
"""Data of older events that stay in the log as well."""
TRIM_EVERY = 3600.0
"""Seconds."""
AT_ONCE = 50
"""Sessions that are forgotten in one transaction, or few: what waits to be written meanwhile waits no longer."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a session that an event woke is kept after its last change (None: for ever), and how many of each
    background session are kept however old they are."""

    sessions: timedelta | None = None
    keep: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Retention:
        """Return what the settings say."""
        seconds = seconds_of(settings.get("retention.sessions"))
        return cls(timedelta(seconds=min(seconds, LONGEST)) if seconds else None, settings.get("retention.keep"))


LONGEST = 3e9
"""Seconds: so long ago no session was changed, and a time is not before the first that there is."""

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
async def kept_small(store: DurableStore, clock: Clock, retention: Retention | None = None) -> AsyncIterator[None]:
    """Trim the inbox, and forget sessions, at once and then every hour while the block runs.

    A failure is logged and changes nothing.
    """
    task = asyncio.create_task(_trimming(store, clock, retention or Retention()), name="retention")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def forget_spent(store: DurableStore, before: datetime, keep: int = 0) -> int:
    """Delete the sessions that events woke and that are spent by then, with those that they made; return how many.

    The newest `keep` of each background session stay. A fork that a person made of one stays, with what it shares.
    """
    count = 0
    while spent := await store.spent_sessions(before=before, keep=keep):
        for at in range(0, len(spent), AT_ONCE):
            made = [each for session_id in spent[at : at + AT_ONCE] for each in await _made_by(store, session_id)]
            await asyncio.gather(*(store.delete(session_id) for session_id in made))
            count += len(made)
    return count


async def _made_by(store: DurableStore, session_id: str) -> list[str]:
    """Return a session and those that it made, and those that they made, but not what is a fork or woken itself."""
    found = [session_id]
    for above in found:
        made = await store.sessions(parent_id=above)
        found += [each.session_id for each in made if each.fork_of is None and each.event_id is None]
    return found


async def _trimming(store: DurableStore, clock: Clock, retention: Retention) -> None:
    while True:
        try:
            await store.trim(before=clock.now() - OVER_FOR, event_bytes=EVENT_BYTES)
            if retention.sessions is not None:
                await forget_spent(store, clock.now() - retention.sessions, retention.keep)
        except Exception as error:
            logger.warning("old sessions, deliveries and events could not be forgotten: %s", error)
        await clock.sleep(TRIM_EVERY)
