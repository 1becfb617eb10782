"""Answer what views ask of any store: by the store itself, or by reading a bounded part of it."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, cast

from amplifier_core.errors import DeliveryNotFound, SessionNotFound
from amplifier_core.storage import Inbox
from amplifier_core.store_views import DeliveryRate, StoreViews

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from amplifier_core.storage import Delivery, DeliveryState, SessionRecord, SessionStore, Status

MOST = 10_000
"""The newest deliveries, or sessions, that one page or count reads."""
LOOK_EVERY = 1.0
"""Seconds between two calls of a listener to a store that does not tell of commits."""


def views_of(store: SessionStore) -> StoreViews:
    """Return the store itself if it shows views; otherwise views that read it, at most `MOST` rows for each call."""
    return store if isinstance(store, StoreViews) else _ReadViews(store)


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
            and text.casefold() in f"{each.name}\n{each.session_id}\n{each.bundle}".casefold()
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
