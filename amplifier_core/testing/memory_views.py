"""Show pages of the deliveries and sessions in memory, and find messages by their words."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from ..errors import DeliveryNotFound
from ..store_views import DeliveryRate, MessageMatch, MessageMatches, quote_words
from ..text_search import contains, fold_text, fold_words, rank, read_query
from ..transcript import text_of
from .memory_documents import has
from .memory_inbox import MemoryInbox

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from ..storage import Delivery, DeliveryState, SessionRecord, Status
    from ..transcript import Message


class MemoryViews(MemoryInbox):
    """Implement `StoreViews` and `MessageSearch` without a file; the rest of the store keeps the sessions."""

    @abstractmethod
    def _stored_messages(self) -> Mapping[int, tuple[SessionRecord, int, Message]]: ...

    @abstractmethod
    async def get(self, session_id: str) -> SessionRecord: ...

    @abstractmethod
    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]: ...

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
        if before is not None and before not in self._deliveries:
            raise DeliveryNotFound(before)
        newest_first = sorted(
            (kept.delivery for kept in reversed(self._deliveries.values())), key=lambda each: each.created, reverse=True
        )
        ids = [each.delivery_id for each in newest_first]
        later = newest_first[0 if before is None else ids.index(before) + 1 :]
        wanted = {"project": project, "queue": queue}
        return [each for each in later if has(each, wanted) and (not states or each.state in states)][:limit]

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
        changed = await self.sessions()
        if before is not None:
            last = await self.get(before)
            ids = [each.session_id for each in changed]
            changed = changed[ids.index(last.session_id) + 1 :]
        return [
            each
            for each in changed
            if has(each, {"project": project})
            and (not statuses or each.status in statuses)
            and fold_text(text) in fold_text(f"{each.name}\n{each.session_id}\n{each.bundle}")
        ][:limit]

    async def delivery_rates(self, *, since: datetime, step: float, project: str | None = None) -> list[DeliveryRate]:
        """Count the deliveries since a time, by queue, step of time and state."""
        length = timedelta(seconds=step)
        if length <= timedelta():
            raise ValueError(f"step: {step} is not above zero seconds")
        begin = since.astimezone(UTC)
        every = (kept.delivery for kept in self._deliveries.values())
        came = [each for each in every if each.created >= begin and has(each, {"project": project})]
        counts = Counter((each.project, each.queue, (each.created - begin) // length, each.state) for each in came)
        return [
            DeliveryRate(of_project, queue, begin + at * length, state, count)
            for (of_project, queue, at, state), count in sorted(counts.items())
        ]

    async def search_messages(self, query: str, *, project: str | None = None, limit: int = 20) -> MessageMatches:
        """Return messages with words of a query, the best first; reads every message."""
        words = read_query(query)
        stored = {n: each for n, each in self._stored_messages().items() if project in (None, each[0].project)}
        folded = {number: fold_words(text_of(message)) for number, (_, _, message) in stored.items()}
        found = [[number for number, text in folded.items() if contains(text, word)] for word in words]
        matches = []
        for number in rank(found, limit=limit):
            record, position, message = stored[number]
            snippet, role = quote_words(text_of(message), words), str(message.get("role") or "")
            matches.append(MessageMatch(record.session_id, record.project, position, role, snippet))
        return MessageMatches(matches)

    async def index_messages(self, limit: int = 1000) -> int:
        """Return 0: a search reads every message."""
        return 0
