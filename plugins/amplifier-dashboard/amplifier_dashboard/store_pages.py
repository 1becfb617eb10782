"""Read pages of a store's deliveries and sessions, and their rates: a stand-in until the store offers them."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Collection

    from amplifier_core.storage import Delivery, SessionRecord

MOST = 5_000


@frozen
class DeliveryRate:
    """Count deliveries."""

    project: str
    queue: str
    at: datetime
    state: str
    count: int


async def delivery_page(
    store: Any,
    *,
    project: str | None = None,
    queue: str | None = None,
    states: Collection[str] = (),
    before: str | None = None,
    limit: int = 50,
) -> list[Delivery]:
    """Return deliveries, newest first."""
    wanted: dict[str, Any] = {"project": project, "queue": queue, "limit": MOST}
    found: list[Delivery] = []
    for state in states or (None,):
        found += await store.deliveries(state=state, **wanted)
    found.sort(key=lambda each: each.created, reverse=True)
    ids = [each.delivery_id for each in found]
    start = ids.index(before) + 1 if before in ids else 0
    return found[start : start + limit]


async def session_page(store: Any, *, before: str | None = None, limit: int = 50, **other: Any) -> list[SessionRecord]:
    """Return sessions, last changed first."""
    found = await store.sessions()
    ids = [each.session_id for each in found]
    start = ids.index(before) + 1 if before in ids else 0
    return list(found[start : start + limit])


async def delivery_rates(store: Any, *, since: datetime, step: float, project: str | None = None) -> list[DeliveryRate]:
    """Return the counts by time."""
    counts: Counter[tuple[str, str, int, str]] = Counter()
    for each in await store.deliveries(project=project, limit=MOST):
        if each.created >= since:
            at = int((each.created - since).total_seconds() // step)
            counts[each.project, each.queue, at, each.state] += 1
    return [
        DeliveryRate(where, queue, since + timedelta(seconds=at * step), state, count)
        for (where, queue, at, state), count in sorted(counts.items())
    ]
