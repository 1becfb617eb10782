"""Enqueue, claim and read deliveries for the checks of an inbox."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from ...events import SessionEvent
from ...triggers import TriggerEvent, TriggerType
from .rules import require

if TYPE_CHECKING:
    from ...storage import Admission, Delivery, DurableStore

LATER = datetime(2100, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
"""After whatever the store's own clock says."""


def event_of(source: str = "test", **fields: Any) -> TriggerEvent:
    """Return an event for a trigger to enqueue."""
    return TriggerEvent(TriggerType.CUSTOM, source, **fields)


def emits(*names: str) -> list[SessionEvent]:
    """Return events for the log."""
    return [SessionEvent(name, {"of": [name]}) for name in names]


async def enqueue_to(
    store: DurableStore,
    source: str = "test",
    queue: str = "queue",
    admission: Admission | None = None,
    now: datetime | None = None,
    **fields: Any,
) -> Delivery:
    """Enqueue a new event; without `now`, at the store's own time."""
    delivery = await store.enqueue("/p", queue, "trigger", event_of(source, **fields), admission=admission, now=now)
    require(delivery is not None, "enqueue of an event that is new must return its delivery")
    return cast("Delivery", delivery)


async def claim_from(
    store: DurableStore, now: datetime = LATER, queue: str = "queue", as_id: str = "worker"
) -> Delivery:
    """Claim a due delivery for a minute."""
    delivery = await store.claim("/p", queue, owner="me", lease=60, session_id=as_id, now=now)
    require(delivery is not None, "claim must return the delivery that is due")
    return cast("Delivery", delivery)


async def nothing_due(store: DurableStore, why: str, now: datetime = LATER, project: str = "/p") -> None:
    """Raise `AssertionError` when there is something to claim."""
    delivery = await store.claim(project, "queue", owner="other", lease=60, session_id="other", now=now)
    require(delivery is None, f"claim must return None: {why}")


async def newest(store: DurableStore) -> Delivery:
    """Return the last enqueued delivery."""
    return (await store.deliveries())[0]


async def reload(store: DurableStore, delivery: Delivery) -> Delivery:
    """Return a delivery as it is now."""
    return next(each for each in await store.deliveries() if each.delivery_id == delivery.delivery_id)
