"""Show modules of a running bundle its queues: their deliveries by state, and the causes of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sessions.origins import find_cause
from .keys import queue_key

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery, DeliveryCounts, DurableStore
    from amplifier_core.triggers import TriggerEvent

    from ..sessions.origins import Cause

QUEUES = "background.queues"
"""The capability of the session above a bundle's background sessions."""


class BundleQueues:
    """The queues of one running bundle; its coroutines may be awaited in any event loop."""

    def __init__(self, store: DurableStore, project: str, bundle: str) -> None:
        self._store = store
        self._project = project
        self._beginning = queue_key(bundle, "")

    def holds(self, delivery: Delivery) -> bool:
        """Return whether a delivery is in one of these queues."""
        return delivery.project == self._project and delivery.queue.startswith(self._beginning)

    async def count(self) -> list[DeliveryCounts]:
        """Return the counts of their deliveries, a row a trigger."""
        counted = await self._store.delivery_counts(project=self._project)
        return [each for each in counted if each.queue.startswith(self._beginning)]

    async def find_cause(self, event: TriggerEvent) -> Cause:
        """Return the first cause of an event, and the nearest one."""
        return await find_cause(self._store, event)
