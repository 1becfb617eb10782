"""Implement `amplifier_core.store_views` and `session_queries`, pages and searches: a part of `SqliteStore`.

Most programs show no views, so the first use imports what they need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from amplifier_core.errors import StoreUnavailable
from amplifier_core.ids import validate_session_id

from .values import micros, plain

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection
    from datetime import datetime
    from pathlib import Path

    from amplifier_core.storage import Delivery, DeliveryState, SessionRecord, Status
    from amplifier_core.store_views import DeliveryRate, MessageMatches

    from .reader import Reader
    from .watching import Watch
    from .writer import Writer

T = TypeVar("T")

INDEXED_FOR = 1.0
"""Seconds that a search indexes messages for, about."""
STEP = 1000
"""Messages that one transaction indexes: others wait for it no longer than for another writer."""


class SqliteViews(ABC):
    """The methods of a store for views."""

    path: Path
    _writer: Writer
    _reader: Reader
    _busy_timeout: float

    @abstractmethod
    async def _read(self, size: int | None, query: Callable[[sqlite3.Connection], T]) -> T: ...

    @cached_property
    def _watch(self) -> Watch:
        from .watching import Watch

        watch = Watch(self.path, self._busy_timeout)
        self._writer.committed = watch.note
        return watch

    def watch_commits(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` in a thread of the store: after a commit of its own at once, after one of others within 50 ms."""
        self._reader.run(lambda db: None)  # fails after `close`
        return self._watch.add(told)

    async def delivery_page(
        self,
        *,
        project: str | None = None,
        queue: str | None = None,
        states: Collection[DeliveryState] = (),
        before: str | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        """Return deliveries, the last arrived first."""
        from . import views

        given = plain(project, "project"), plain(queue, "queue"), tuple(states), plain(before, "before"), limit
        return await self._read(None, lambda db: views.delivery_page(db, *given))

    async def session_page(
        self,
        *,
        project: str | None = None,
        statuses: Collection[Status] = (),
        text: str = "",
        before: str | None = None,
        limit: int = 50,
    ) -> list[SessionRecord]:
        """Return sessions, the last changed first. With a text, many new sessions are indexed first, for a second."""
        from . import session_texts, views

        if text:
            await self._catch_up(session_texts.is_behind, session_texts.index_texts)
        given = plain(project, "project"), tuple(statuses), text, plain(before, "before"), limit
        return await self._read(None, lambda db: views.session_page(db, *given))

    async def sessions_below(self, session_id: str, *, limit: int | None = None) -> list[SessionRecord]:
        """Return the sessions below a session, those above first."""
        from . import sessions

        validate_session_id(session_id)
        return await self._read(None, lambda db: sessions.list_below(db, session_id, limit))

    async def sessions_with(
        self, member: str, *, project: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions with a member in their metadata, the last updated first."""
        from . import sessions

        wanted = {} if project is None else {"project": plain(project, "project")}
        return await self._read(None, lambda db: sessions.list_with(db, member, wanted, limit))

    async def delivery_rates(self, *, since: datetime, step: float, project: str | None = None) -> list[DeliveryRate]:
        """Count the deliveries since a time, by queue, step of time and state."""
        from . import views

        given = plain(project, "project"), micros(since), timedelta(seconds=step) // timedelta(microseconds=1)
        if given[2] < 1:
            raise ValueError(f"step: {step} is not above zero seconds")
        return await self._read(None, lambda db: views.delivery_rates(db, *given))

    async def search_messages(self, query: str, *, project: str | None = None, limit: int = 20) -> MessageMatches:
        """Return messages with words of a query, the best first. Raises `StoreUnavailable` without FTS5."""
        from time import monotonic

        from amplifier_core.text_search import read_query

        from . import message_search

        words, column, end = read_query(query), plain(project, "project"), monotonic() + INDEXED_FOR
        while True:
            try:
                while words and await self.index_messages(STEP) and monotonic() < end:
                    pass
            except StoreUnavailable:  # of a full disk: what is indexed is found all the same
                if not await self._read(None, message_search.has_index):
                    raise
                end = 0.0
            found = await self._read(None, lambda db: message_search.search(db, column, words, limit))
            if found.complete or not words or monotonic() >= end:
                return found

    async def find_words(self, part: str, *, limit: int = 100) -> list[str]:
        """Return indexed words of messages with `part` in them."""
        from . import message_search, message_words

        await self._catch_up(message_words.is_behind, message_words.catch_up)
        return await self._read(None, lambda db: message_search.find_words(db, part, limit))

    async def find_sharing(self, session_id: str, position: int, *, limit: int = 100) -> list[str]:
        """Return the ids of the sessions that have a message of a session, itself too."""
        from . import message_search

        # some steps in indexes for each: no thread is worth it
        return await self._read(0, lambda db: message_search.find_sharing(db, session_id, position, limit))

    async def index_messages(self, limit: int = 1000) -> int:
        """Index messages, the newest first."""
        from . import message_search

        size = min(limit, STEP)
        planned = await self._read(None, lambda db: message_search.plan(db, size))
        return await self._writer.run(lambda db: message_search.carry_out(db, planned)) if planned else 0

    async def _catch_up(
        self, is_behind: Callable[[sqlite3.Connection], bool], step: Callable[[sqlite3.Connection], object]
    ) -> None:
        """Write steps of an index until it is not behind, for at most about a second; a search needs no whole index."""
        from time import monotonic

        from .reader import in_event_loop

        end = monotonic() + INDEXED_FOR
        with suppress(StoreUnavailable):  # the disk is full, say
            while self._reader.run_short(is_behind) and monotonic() < end:
                if in_event_loop():
                    await self._writer.run(step)
                else:
                    self._writer.submit(step).result()
