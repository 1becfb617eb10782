"""Forget old sessions, deliveries and events: sessions on request or by settings, the others by themselves."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.cancellation import own_failure
from amplifier_core.durations import seconds_of
from amplifier_core.errors import DeliveryNotFound, SessionNotFound, StoreUnavailable
from amplifier_core.frozen import frozen
from amplifier_core.raised import describe_raised
from amplifier_core.storage import Purged, StoreAdministration
from amplifier_core.store_administration import compactions
from amplifier_core.utils.secrets import redact_text

from ..documents.sizes import size_of
from ..sessions.lineage import read_below
from ..sessions.lock import holder_of
from ..sessions.presence import KEY, as_it_is
from ..sessions.store_views import read_in_steps, views_of
from .store_upkeep import back_up_if_due
from .tasks import keep_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Iterable, Sequence
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.storage import DeliveryState, DurableStore, SessionRecord, SessionStore
    from amplifier_core.store_administration import StoreUse

    from ..settings import Settings

logger = logging.getLogger(__name__)

OVER_FOR = timedelta(days=30)
"""Deliveries stay at least this long: a repeated event within it is handled once."""
EVENT_BYTES = 64 * 2**20
"""Bytes of data of older events that stay in the log as well."""
WANTED_FOR = timedelta(days=1)
"""Deliveries and events stay at least this long in a store that is too large."""
NEEDED = {
    "deliveries": "unfinished ones, dead letters, those finished within a day",
    "events": "those of the last day",
    "documents": "all, as issues",
    "trigger states": "all",
    "received ids": "all",
}
"""The part of each kind of data (`StoreUse.kind`) that stays in such a store; no deleted session makes it smaller."""
PURGED: tuple[DeliveryState, ...] = ("done", "refused", "skipped")
"""The states of purged deliveries."""
PURGE_EVERY = 3600.0
"""Seconds."""
LEFT_ALONE = timedelta(days=10)
"""A store without a change for so long at a start is a sign that the clock may be wrong."""
AT_ONCE = 50
"""Sessions deleted at once: other writers wait no longer than for these."""
READ = 1_000
"""Ids of expired sessions that are read at a time."""
NAMED = 3
"""Kinds of data named by a warning, the largest."""


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


def retention_in(project: str) -> Retention | None:
    """Return the retention in the settings of a project's folder; None while they have mistakes, or are not trusted.

    A folder that is gone has the settings of the user, and so has "".
    """
    from ..security import TrustUnreadable
    from ..security.trust import check_settings
    from ..settings import SettingsError, read_settings, read_user_settings

    try:
        if not Path(project).is_absolute():
            return Retention.of(read_user_settings())
        folder = Path(project)
        settings = read_settings(folder)
        return Retention.of(settings) if check_settings(settings, folder) is None else None
    except (SettingsError, TrustUnreadable):
        return None


LONGEST = 3e9
"""Seconds: no session is older, and the time so long ago is still a valid one."""


def age(text: str) -> timedelta:
    """Return the duration of a text such as `90m`, `1h30m` or `30 days`, `LONGEST` at most. Raises `ValueError`."""
    try:
        return timedelta(seconds=min(seconds_of(text), LONGEST))
    except ValueError:
        raise ValueError(f"'{text}' is not a duration; write numbers with units, such as 30d or 1h30m") from None


def disposable(
    records: Iterable[SessionRecord], *, before: datetime | None, keep: int = 0, needed: Container[str] = ()
) -> list[SessionRecord]:
    """Return the sessions to delete, the oldest first: last changed before `before`, and not among the newest `keep`.

    Running sessions stay, sessions that a process holds, and sessions in `needed`.
    """
    newest_first = sorted(records, key=lambda record: (record.updated, record.session_id), reverse=True)
    return [
        record
        for record in reversed(newest_first[keep:])
        if as_it_is(record).status != "running"
        and record.session_id not in needed
        and (before is None or record.updated < before)
        and holder_of(record.session_id) is None
    ]


async def find_disposable(
    store: SessionStore,
    projects: Collection[str] | None,
    *,
    before: datetime | None,
    keep: int = 0,
    needed: Container[str] = (),
) -> list[SessionRecord]:
    """Return the `disposable` sessions of projects (None: of all), without their `config` and `metadata`.

    A store that shows pages is read in steps, and what is not needed is let go of: whole records of many sessions take
    hundreds of megabytes.
    """
    found: list[SessionRecord] = []
    for project in [None] if projects is None else set(projects):
        async for page in read_in_steps(store, project):
            for each in page:
                if keep or before is None or each.updated < before:
                    process = {KEY: each.metadata[KEY]} if KEY in each.metadata else {}
                    found.append(replace(each, config={}, metadata=process))
    chosen = disposable(found, before=before, keep=keep, needed=needed)
    return [replace(each, metadata={}) for each in chosen]


async def count_purged(store: DurableStore, before: datetime) -> Purged:
    """Count the rows for `store.purge(before=before)`; of a store without pages, among its newest deliveries."""
    deliveries, events, since, last = 0, 0, 0, None
    with suppress(DeliveryNotFound):  # another process purges: what is older goes there
        while page := await views_of(store).delivery_page(states=PURGED, before=last, limit=READ):
            deliveries += sum(each.updated < before for each in page)
            last = page[-1].delivery_id
    while logged := await store.events(since=since, limit=READ):
        old = sum(1 for _ in takewhile(lambda each: each.timestamp < before, logged))
        events += old
        if old < len(logged):
            break
        since = logged[-1].sequence or since
    return Purged(deliveries, events)


@asynccontextmanager
async def purging(
    store: DurableStore,
    clock: Clock,
    retention: Retention | Callable[[str], Retention | None] | None = None,
    projects: Sequence[str] = (),
) -> AsyncIterator[None]:
    """Purge the inbox, and forget sessions, at once and then every hour while the block runs.

    The store is backed up before, if that is due. When that fails, or when nobody has changed the store for long, as
    with a clock that is ahead, the first purge comes after an hour. A `retention` that is a function tells that of each
    project, as `retention_in` does: sessions of `projects` go by theirs, and those of others by that of "" if they have
    no other one. A failure is logged and changes nothing.
    """
    newest = None
    with suppress(StoreUnavailable):  # before this process changes sessions
        newest = next((each.updated for each in await store.sessions(limit=1)), None)
    idle = timedelta(0) if newest is None else clock.now() - newest
    work = partial(_purge_regularly, store, clock, retention or Retention(), projects, idle)
    async with keep_beside(work, "retention", clock=clock):
        yield


async def delete_expired(
    store: DurableStore,
    before: datetime,
    keep: int = 0,
    is_wanted: Callable[[str], Awaitable[bool]] | None = None,
) -> int:
    """Delete the expired sessions of events, with their children; return how many.

    The newest `keep` of each background session stay, those that a process holds or has a child of open, and those that
    `is_wanted` (their ids) denies. A person's fork of one stays, with its shared history.
    """
    return sum([await _delete_whole(store, trees) async for trees in _expired(store, before, keep, is_wanted)])


async def bound_size(
    store: DurableStore,
    now: datetime,
    retention: Retention,
    is_wanted: Callable[[str], Awaitable[bool]] | None = None,
) -> None:
    """Forget more than age and number ask for, the oldest first, until the store is within `max_size`.

    Deliveries finished a day ago and events go first, then sessions of events, as with `delete_expired`, unless all
    else is too large by itself. Warns when the rest is needed. Free room is given back to the file system.
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
    if await is_too_large():
        uses = (await asyncio.to_thread(administration.info)).uses
        others = sum(each.bytes for each in uses if each.kind in NEEDED)
        is_enough = False
        if retention.max_size is not None and others <= retention.max_size:  # else no deleted session helps
            async for trees in _expired(store, now, retention.keep, is_wanted):
                await _delete_whole(store, trees)
                if is_enough := not await is_too_large():
                    break
        if not is_enough:
            _warn_of_size((await asyncio.to_thread(administration.info)).uses, retention)
    steps = compactions(administration)
    while await asyncio.to_thread(next, steps, None):
        pass


def _warn_of_size(uses: Sequence[StoreUse], retention: Retention) -> None:
    """Say what takes the room of a store of which nothing more may be forgotten."""
    sessions = f"sessions of people, those with unfinished deliveries, the newest {retention.keep} of each queue"
    largest = [f"{use.kind} {use.bytes:,} bytes ({NEEDED.get(use.kind, sessions)})" for use in uses[:NAMED]]
    logger.warning(
        "the store is larger than retention.max_size (%s bytes), and the rest is needed: %s. See: amplifier store "
        "info. Discard dead or waiting events with: amplifier trigger drop; delete sessions, finished deliveries and "
        "events with: amplifier session prune --all --older-than 1h; or raise retention.max_size",
        f"{retention.max_size:,}",
        ", ".join(largest),
    )


async def _expired(
    store: DurableStore, before: datetime, keep: int, is_wanted: Callable[[str], Awaitable[bool]] | None
) -> AsyncIterator[list[list[str]]]:
    """Yield expired sessions, the oldest first, at most `AT_ONCE` at a time; the caller deletes them.

    Each is a list of ids: its own, and those of all sessions below it. A process holds none of them.
    """
    passed = 0
    while ids := (await store.expired_sessions(before=before, keep=keep, limit=passed + READ))[passed:]:
        for at in range(0, len(ids), AT_ONCE):
            some = ids[at : at + AT_ONCE]
            wanted = [each for each in some if is_wanted is None or await is_wanted(each)]
            trees = [[each, *(below.session_id for below in await read_below(store, each))] for each in wanted]
            trees = [tree for tree in trees if all(holder_of(each) is None for each in tree)]
            passed += len(some) - len(trees)
            if trees:
                yield trees


async def _delete_whole(store: DurableStore, trees: Sequence[Sequence[str]]) -> int:
    """Delete sessions with all sessions below them; return how many."""
    from ..sessions.kept_files import forget_files
    from .worktree_steps import release_worktrees

    ids = [each for tree in trees for each in tree]
    await release_worktrees([tree[0] for tree in trees])
    await asyncio.gather(*(_delete(store, session_id) for session_id in ids))
    await asyncio.to_thread(forget_files, ids)
    return len(ids)


async def _delete(store: DurableStore, session_id: str) -> None:
    with suppress(SessionNotFound):  # another process was faster
        await store.delete(session_id)


async def _purge_regularly(
    store: DurableStore,
    clock: Clock,
    retention: Retention | Callable[[str], Retention | None],
    projects: Sequence[str],
    idle: timedelta,
) -> None:
    administration, doubt = getattr(store, "administration", None), ""
    if idle >= LEFT_ALONE:
        doubt = f"the last change of the store was {idle.days} days ago. Set the clock if it is wrong"
    try:
        if isinstance(administration, StoreAdministration):
            await asyncio.to_thread(back_up_if_due, administration, clock.now())
    except OSError as error:
        doubt = str(error)
    if doubt:
        logger.warning("nothing is forgotten within this hour: %s", doubt)
        await clock.sleep(PURGE_EVERY)
    while True:
        try:
            await store.purge(before=clock.now() - OVER_FOR, event_bytes=EVENT_BYTES)
            if isinstance(retention, Retention):
                await _forget(store, clock.now(), retention)
            else:
                await _forget_by_project(store, clock.now(), retention, projects)
        except BaseException as raised:
            problem = redact_text(describe_raised(own_failure(raised)))
            logger.warning("old sessions, deliveries and events could not be forgotten: %s", problem)
        await clock.sleep(PURGE_EVERY)


async def _forget(
    store: DurableStore,
    now: datetime,
    retention: Retention,
    is_wanted: Callable[[str], Awaitable[bool]] | None = None,
) -> None:
    if retention.sessions is not None:
        await delete_expired(store, now - retention.sessions, retention.keep, is_wanted)
    await bound_size(store, now, retention, is_wanted)


async def _forget_by_project(
    store: DurableStore, now: datetime, tell: Callable[[str], Retention | None], projects: Sequence[str]
) -> None:
    """Forget what each project allows; a project whose retention is another one waits for its own process."""
    known: dict[str, Retention | None] = {}

    async def read(project: str) -> Retention | None:
        if project not in known:
            known[project] = await asyncio.to_thread(tell, project)  # it reads files
        return known[project]

    for retention in dict.fromkeys([await read(each) for each in ("", *projects)]):

        async def is_wanted(session_id: str, retention: Retention | None = retention) -> bool:
            with suppress(SessionNotFound):
                return await read((await store.get(session_id)).project) == retention
            return False

        if retention is not None:
            await _forget(store, now, retention, is_wanted)
