"""Hold the rows of the inbox in memory, and count them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..frozen import slotted
from ..storage import DeliveryCounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ..events import SessionEvent
    from ..storage import Delivery, DeliveryState

_OPEN = ("pending", "claimed")


@slotted
class Kept:
    """Hold a delivery with the columns private to the store."""

    delivery: Delivery
    lease_until: datetime | None = None
    settle_key: str | None = None
    settling_since: datetime | None = None

    def is_open(self) -> bool:
        return self.delivery.state in _OPEN

    def is_held(self, now: datetime) -> bool:
        return self.delivery.state == "claimed" and self.lease_until is not None and self.lease_until > now

    def is_of_key(self, delivery: Delivery) -> bool:
        mine = self.delivery
        return mine.key is not None and (mine.key, mine.queue, mine.project) == (
            delivery.key,
            delivery.queue,
            delivery.project,
        )


def merge_state(state: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trigger's state with changes: each replaces the key of its name, None deletes one."""
    gone = {key for key, value in changes.items() if value is None}
    return {key: value for key, value in {**state, **changes}.items() if key not in gone}


def count_states(project: str, queue: str, trigger: str, all_of_it: Sequence[Delivery]) -> DeliveryCounts:
    """Count the deliveries of one trigger."""
    counts: Counter[DeliveryState] = Counter(each.state for each in all_of_it)
    waiting = min((each.created for each in all_of_it if each.state in _OPEN), default=None)
    return DeliveryCounts(project, queue, trigger, dict(counts), max(each.created for each in all_of_it), waiting)


def size_of(event: SessionEvent) -> int:
    """Return the bytes of an event's data, as JSON in UTF-8."""
    return len(json.dumps(event.data, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass"))
