"""Answer what views ask of any store: by the store itself, or by reading a bounded part of it."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, cast

from amplifier_core.errors import DeliveryNotFound, SessionNotFound
from amplifier_core.session_queries import SessionQueries
from amplifier_core.storage import Inbox
from amplifier_core.store_views import (
    DeliveryRate,
    MessageMatch,
    MessageMatches,
    MessageSearch,
    StoreViews,
    quote_words,
)
from amplifier_core.text_search import fold_text

from .lineage import above_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence
    from datetime import datetime

    from amplifier_core.storage import Delivery, DeliveryState, SessionRecord, SessionStore, Status
    from amplifier_core.transcript import Message

MOST = 10_000
"""The newest deliveries, or sessions, that one page or count reads."""
SEARCHED = 20_000
"""The messages that one search reads: those of the last changed sessions."""
STEP = 250
"""Sessions that are read at once where all are read: the memory holds no more."""
LOOK_EVERY = 1.0
"""Seconds between two calls of a listener to a store that does not tell of commits."""


def views_of(store: SessionStore) -> StoreViews:
    """Return the store itself if it shows views; otherwise views that read it, at most `MOST` rows for each call."""
    return store if isinstance(store, StoreViews) else _ReadViews(store)


def search_of(store: SessionStore) -> MessageSearch:
    """Return the store itself if it finds messages; otherwise a search that reads up to `SEARCHED` messages."""
    return store if isinstance(store, MessageSearch) else _ReadSearch(store)


def queries_of(store: SessionStore) -> SessionQueries:
    """Return the store itself if it answers queries about sessions; otherwise queries that read all sessions."""
    return store if isinstance(store, SessionQueries) else _ReadQueries(store)


async def read_in_steps(store: SessionStore, project: str | None = None) -> AsyncIterator[Sequence[SessionRecord]]:
    """Yield all sessions, or those of one project, once each, the last changed first; a store without views at once.

    No step is empty. A session that changes meanwhile moves to the begin of the list. So the begin is read again, until
    nothing is new.
    """
    if not isinstance(store, StoreViews):
        if found := await store.sessions(project=project):
            yield found
        return
    known, bound = set[str](), None
    while True:
        before, newest, has_new = None, None, False
        while True:
            try:
                page = await store.session_page(project=project, before=before, limit=STEP)
            except SessionNotFound:  # the last session of a page was deleted
                before = None
                continue
            newest = newest or (page[0].updated if page else None)
            if new := [each for each in page if each.session_id not in known]:
                known.update(each.session_id for each in new)
                has_new = True
                yield new
            if len(page) < STEP or (bound is not None and page[-1].updated < bound):
                break
            before = page[-1].session_id
        if not has_new or (before is None and bound is None):  # one page is one state of the store
            return
        bound = newest


class _ReadViews:
    """Implement `StoreViews` for any store. Without an inbox there are no deliveries."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def watch_commits(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` every second: the store tells of nothing."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(LOOK_EVERY):
                told()

        threading.Thread(target=run, name="watch of a store", daemon=True).start()
        return ended.set

    async def delivery_page(
        self,
        *,
        project: str | None = None,
        queue: str | None = None,
        states: Collection[DeliveryState] = (),
        before: str | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        """Return deliveries, the last arrived first, of the newest `MOST`."""
        found = await self._deliveries(project=project, queue=queue)
        if before is not None:
            ids = [each.delivery_id for each in found]
            if before not in ids:
                raise DeliveryNotFound(before)
            found = found[ids.index(before) + 1 :]
        return [each for each in found if not states or each.state in states][:limit]

    async def session_page(
        self,
        *,
        project: str | None = None,
        statuses: Collection[Status] = (),
        text: str = "",
        before: str | None = None,
        limit: int = 50,
    ) -> list[SessionRecord]:
        """Return sessions, the last changed first, of the newest `MOST`."""
        found: Sequence[SessionRecord] = await self._store.sessions(project=project, limit=MOST)
        if before is not None:
            ids = [each.session_id for each in found]
            if before not in ids:
                raise SessionNotFound(before)
            found = found[ids.index(before) + 1 :]
        return [
            each
            for each in found
            if (not statuses or each.status in statuses)
            and fold_text(text) in fold_text(f"{each.name}\n{each.session_id}\n{each.bundle}")
        ][:limit]

    async def delivery_rates(self, *, since: datetime, step: float, project: str | None = None) -> list[DeliveryRate]:
        """Count the newest `MOST` deliveries since a time, by queue, step of time and state."""
        length, begin = timedelta(seconds=step), since.astimezone(UTC)
        if length <= timedelta():
            raise ValueError(f"step: {step} is not above zero seconds")
        came = [each for each in await self._deliveries(project=project) if each.created >= begin]
        counts = Counter((each.project, each.queue, (each.created - begin) // length, each.state) for each in came)
        return [
            DeliveryRate(of_project, queue, begin + at * length, state, count)
            for (of_project, queue, at, state), count in sorted(counts.items())
        ]

    async def _deliveries(self, **place: Any) -> list[Delivery]:
        if not isinstance(self._store, Inbox):
            return []
        found = await cast("Inbox", self._store).deliveries(**place, limit=MOST)
        return sorted(found, key=lambda each: each.created, reverse=True)


class _ReadQueries:
    """Implement `SessionQueries` for any store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def sessions_below(self, session_id: str, *, limit: int | None = None) -> list[SessionRecord]:
        """Return the sessions below a session, those above first."""
        children: dict[str | None, list[SessionRecord]] = {}
        async for page in read_in_steps(self._store):
            for each in page:
                if each.session_id != session_id:
                    children.setdefault(above_id(each), []).append(each)
        found = children.pop(session_id, [])
        for each in found:  # it grows meanwhile; a circle of a damaged store is passed once
            found += children.pop(each.session_id, ())
        return found[:limit]

    async def sessions_with(
        self, member: str, *, project: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions with a member in their metadata, the last updated first."""
        found: list[SessionRecord] = []
        async for page in read_in_steps(self._store, project):
            found += [each for each in page if member in each.metadata]
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]


class _ReadSearch:
    """Implement `MessageSearch` for any store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def search_messages(self, query: str, *, project: str | None = None, limit: int = 20) -> MessageMatches:
        """Return messages with words of a query; `complete` says whether all were read."""
        from amplifier_core.text_search import contains, fold_words, rank, read_query
        from amplifier_core.transcript import text_of

        words = read_query(query)
        messages, is_complete = await self._newest_messages(project)
        folded = [fold_words(text_of(message)) for _, _, message in messages]
        found = [[-at for at, text in enumerate(folded) if contains(text, word)] for word in words]
        matches = []
        for number in rank(found, limit=limit):
            record, position, message = messages[-number]
            snippet, role = quote_words(text_of(message), words), str(message.get("role") or "")
            matches.append(MessageMatch(record.session_id, record.project, position, role, snippet))
        return MessageMatches(matches, is_complete)

    async def index_messages(self, limit: int = 1000) -> int:
        """Return 0: there is no index."""
        return 0

    async def _newest_messages(self, project: str | None) -> tuple[list[tuple[SessionRecord, int, Message]], bool]:
        """Return at most `SEARCHED` messages, the newest of each session first, and whether these are all.

        The messages that a fork shares with a stored session are its source's.
        """
        records = await self._store.sessions(project=project)
        stored = {each.session_id for each in records}
        found: list[tuple[SessionRecord, int, Message]] = []
        for record in records:
            start = (record.fork_at or 0) if record.fork_of in stored else 0
            if len(found) + record.message_count - start > SEARCHED:
                return found, False
            own = await self._store.read(record.session_id, start)
            found += reversed([(record, start + at, message) for at, message in enumerate(own)])
        return found, True
