"""Give deliveries back to their queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..sessions.store_arguments import known_arguments

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.storage import Delivery, Inbox


async def give_back(store: Inbox, delivery: Delivery, clock: Clock, reason: str, due: datetime, **how: Any) -> None:
    """Give a delivery back, to be tried at `due`; `how` are the other arguments of `nack`. Raises its errors."""
    how |= known_arguments(store.nack, now=clock.now())
    await store.nack(delivery, reason=reason, available_at=due, **how)
