"""Implement `amplifier_core.store_views` and `session_queries`, pages and searches: a part of `PostgresStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.ids import validate_session_id
from amplifier_core.text_search import read_query

from . import message_search, views
from .deliveries import span
from .part import Part
from .values import micros, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from amplifier_core.storage import Delivery, DeliveryState, SessionRecord, Status
    from amplifier_core.store_views import DeliveryRate, MessageMatches


class PostgresViews(Part):
    """The methods of a store for views."""

    def watch_commits(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told`, in a thread of the store, after a commit; lease renewals and signs of processes are not told."""
        return self._runner.hints.watch(told)

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
        wanted = {**self._filters({"project": project, "queue": queue}), "states": list(states) or None, "limit": limit}
        last = None if before is None else str(plain(before, "before"))
        return await self._runner.read(views.delivery_page, self._runner.projects, wanted, last)

    async def session_page(
        self,
        *,
        project: str | None = None,
        statuses: Collection[Status] = (),
        text: str = "",
        before: str | None = None,
        limit: int = 50,
    ) -> list[SessionRecord]:
        """Return sessions, the last changed first."""
        wanted = self._filters({"project": project}) | ({"statuses": list(statuses)} if statuses else {})
        last = None if before is None else str(plain(before, "before"))
        return await self._runner.read(views.session_page, self._runner.projects, wanted, text, last, limit)

    async def sessions_below(self, session_id: str, *, limit: int | None = None) -> list[SessionRecord]:
        """Return the sessions below a session, those above first."""
        validate_session_id(session_id)
        return await self._runner.read(views.sessions_below, self._runner.projects, session_id, limit)

    async def sessions_with(
        self, member: str, *, project: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions with a member in their metadata, the last updated first."""
        wanted = self._filters({"project": project})
        return await self._runner.read(views.sessions_with, self._runner.projects, member, wanted, limit)

    async def delivery_rates(self, *, since: datetime, step: float, project: str | None = None) -> list[DeliveryRate]:
        """Count the deliveries since a time, by queue, step of time and state."""
        wanted = {**self._filters({"project": project}), "since": micros(since), "step": span(step)}
        if wanted["step"] < 1:
            raise ValueError(f"step: {step} is not above zero seconds")
        return await self._runner.read(views.delivery_rates, self._runner.projects, wanted)

    async def search_messages(self, query: str, *, project: str | None = None, limit: int = 20) -> MessageMatches:
        """Return messages with words of a query, the best first."""
        place = self._filters({"project": project}).get("project")
        return await self._runner.read(message_search.search, self._runner.projects, place, read_query(query), limit)

    async def index_messages(self, limit: int = 1000) -> int:
        """Index messages, those of the last changed sessions first."""
        return await self._runner.read(message_search.index, limit)
