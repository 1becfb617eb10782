"""Give deliveries back to their queues, and make postponed ones due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.storage import PromptDeliveries

from ..sessions.store_arguments import known_arguments

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.storage import Delivery, DurableStore, Inbox

POSTPONED = "postponed: "
"""The beginning of the reason of a delivery that waits for a budget, a key or a plugin."""
WITH_QUEUE = "postponed with its queue: "
"""The beginning of the reason of one that waits, in its place, for the same as its whole queue, as for its folder."""
OUTAGE = "postponed by an outage: "
"""The beginning of the reason of one that waits for its provider to answer, or for its key."""
_SPENT = ", and no request begins beyond that. "
"""In the reason of one that waits for a budget since an earlier version, which wrote no such beginning."""
MOST_POSTPONED = 10_000
"""The newest waiting deliveries in which a start looks for postponed ones."""


async def give_back(store: Inbox, delivery: Delivery, clock: Clock, reason: str, due: datetime, **how: Any) -> None:
    """Give a delivery back, to be tried at `due`; `how` are the other arguments of `nack`. Raises its errors."""
    how |= known_arguments(store.nack, now=clock.now())
    await store.nack(delivery, reason=reason, available_at=due, **how)


async def make_due(store: DurableStore, delivery_id: str, now: datetime | None = None) -> bool:
    """Make a waiting delivery due now; return whether it was due later. Of a store that cannot, it stays as it is."""
    return isinstance(store, PromptDeliveries) and await store.make_due(delivery_id, now=now)


def is_postponed(delivery: Delivery) -> bool:
    """Return whether a delivery waits for a budget, a key or a plugin."""
    reason = delivery.reason or ""
    return delivery.state == "pending" and (reason.startswith((POSTPONED, WITH_QUEUE, OUTAGE)) or _SPENT in reason)


def waits_with_queue(delivery: Delivery) -> bool:
    """Return whether a postponed delivery waits for the same as its whole queue."""
    return delivery.state == "pending" and (delivery.reason or "").startswith((WITH_QUEUE, OUTAGE))


def due_of(delivery: Delivery) -> datetime | None:
    """Return when a waiting delivery is tried next; None if that is not known, as it waits in its place."""
    return None if waits_with_queue(delivery) and delivery.available_at <= delivery.updated else delivery.available_at


def plain_reason(delivery: Delivery) -> str:
    """Return the reason of a postponed delivery, without its beginning."""
    reason = str(delivery.reason)
    for beginning in (POSTPONED, WITH_QUEUE, OUTAGE):
        reason = reason.removeprefix(beginning)
    return reason


async def resume_postponed(store: DurableStore, project: str, queue: str, now: datetime) -> set[str]:
    """Make postponed deliveries due: what they wait for may have changed, and postpones them again if not.

    They are tried in the order in which they were accepted. Return the ids of those that the store cannot make due
    before their time.
    """
    waiting = await store.deliveries(project=project, queue=queue, state="pending", limit=MOST_POSTPONED)
    put_back = [each for each in waiting if is_postponed(each) and each.available_at > each.created]
    as_before = [each for each in put_back if not await make_due(store, each.delivery_id, min(each.created, now))]
    return {each.delivery_id for each in as_before if each.available_at > now}
