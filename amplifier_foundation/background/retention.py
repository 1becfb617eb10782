"""Forget old sessions, deliveries and events: sessions on request or by settings, the others by themselves."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from amplifier_core.durations import seconds_of
from amplifier_core.frozen import frozen
from amplifier_core.storage import StoreAdministration

from ..documents.sizes import size_of
from ..sessions.file_changes import forget_changes
from ..sessions.lineage import read_below
from ..sessions.presence import as_it_is
from .tasks import run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterable, Sequence
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore, SessionRecord

    from ..settings import Settings

logger = logging.getLogger(__name__)

OVER_FOR = timedelta(days=30)
"""Deliveries stay at least this long: a repeated event within it is handled once."""
EVENT_BYTES = 64 * 2**20
"""Bytes of data of older events that stay in the log as well."""
WANTED_FOR = timedelta(days=1)
"""Deliveries stay at least this long in a store that is too large."""
PURGE_EVERY = 3600.0
"""Seconds."""
AT_ONCE = 50
"""Sessions deleted at once: other writers wait no longer than for these."""


@frozen
class Retention:
    """How long the sessions of events are kept after their last change (None: for ever); the newest `keep` of each
    background session stay, however old. A store above `max_size` bytes forgets more (None: without a bound)."""

    sessions: timedelta | None = None
    keep: int = 0
    max_size: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> Retention:
        """Return the retention in the settings."""
        seconds = seconds_of(settings.get("retention.sessions"))
        return cls(
            timedelta(seconds=min(seconds, LONGEST)) if seconds else None,
            settings.get("retention.keep"),
            size_of(settings.get("retention.max_size", 0)) or None,
        )


LONGEST = 3e9
"""Seconds: no session is older, and the time so long ago is still a valid one."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str) -> timedelta:
    """Return the duration `90s`, `90m`, `36h`, `30d` or `8w`. Raises `ValueError`."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if found is None:
        raise ValueError(f"'{text}' is not a duration; write a number and s, m, h, d or w, such as 30d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def disposable(
    records: Iterable[SessionRecord], *, before: datetime | None, keep: int = 0, needed: Container[str] = ()
) -> list[SessionRecord]:
    """Return the sessions to delete, the oldest first: last changed before `before`, and not among the newest `keep`.

    Running sessions stay, and sessions in `needed`.
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
async def purging(store: DurableStore, clock: Clock, retention: Retention | None = None) -> AsyncIterator[None]:
    """Purge the inbox, and forget sessions, at once and then every hour while the block runs.

    A failure is logged and changes nothing.
    """
    async with run_beside(_purge_regularly(store, clock, retention or Retention()), "retention"):
        yield


async def delete_expired(store: DurableStore, before: datetime, keep: int = 0) -> int:
    """Delete the expired sessions of events, with their children; return how many.

    The newest `keep` of each background session stay. A person's fork of one stays, with its shared history.
    """
    count = 0
    while spent := await store.expired_sessions(before=before, keep=keep):
        for at in range(0, len(spent), AT_ONCE):
            count += await _delete_whole(store, spent[at : at + AT_ONCE])
    return count


async def bound_size(store: DurableStore, now: datetime, retention: Retention) -> None:
    """Forget more than age and number ask for, the oldest first, until the store is within `max_size`.

    Deliveries finished a day ago and events go first, then sessions of events, except the newest `keep`. Warns when the
    rest is needed. Free room is given back to the file system.
    """
    administration = getattr(store, "administration", None)
    if not isinstance(administration, StoreAdministration):
        if retention.max_size is not None:
            logger.warning("retention.max_size: this storage does not tell its size; nothing is forgotten for it")
        return

    async def is_too_large() -> bool:
        size, free = await asyncio.to_thread(administration.size)
        return retention.max_size is not None and size - free > retention.max_size

    if await is_too_large():
        await store.purge(before=now - WANTED_FOR, event_bytes=0)
    while await is_too_large():
        ids = await store.expired_sessions(before=now, keep=retention.keep, limit=AT_ONCE)
        if not ids:
            logger.warning(
                "the store is larger than retention.max_size (%s bytes), and the rest is needed: unfinished "
                "deliveries, dead letters, sessions of people, the newest %s of each background session. See: "
                "amplifier store info; delete sessions with: amplifier session prune",
                f"{retention.max_size:,}",
                retention.keep,
            )
            break
        await _delete_whole(store, ids)
    await asyncio.to_thread(administration.compact)


async def _delete_whole(store: DurableStore, session_ids: Sequence[str]) -> int:
    """Delete sessions with all sessions below them; return how many."""
    from .worktree_steps import release_worktrees

    below = [each.session_id for above in session_ids for each in await read_below(store, above)]
    await release_worktrees(session_ids)
    await asyncio.gather(*(store.delete(session_id) for session_id in (*session_ids, *below)))
    await asyncio.to_thread(forget_changes, [*session_ids, *below])
    return len(session_ids) + len(below)


async def _purge_regularly(store: DurableStore, clock: Clock, retention: Retention) -> None:
    while True:
        try:
            await store.purge(before=clock.now() - OVER_FOR, event_bytes=EVENT_BYTES)
            if retention.sessions is not None:
                await delete_expired(store, clock.now() - retention.sessions, retention.keep)
            await bound_size(store, clock.now(), retention)
        except Exception as error:
            logger.warning("old sessions, deliveries and events could not be forgotten: %s", error)
        await clock.sleep(PURGE_EVERY)
