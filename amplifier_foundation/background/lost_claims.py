"""Remember the claims of deliveries that could not be given back: the store counts them as attempts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery

MOST_LOST = 100
"""Deliveries with lost claims that a process remembers."""


class LostClaims:
    """The lost claims of one process, also beyond a new start of a background session.

    A claim is lost from the first try to give it back on, until one succeeds. The last claim of a delivery may be left
    to its lease, with the error of the store as its problem.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Lost claims by the id of their delivery."""
        self._left: dict[str, tuple[int, str]] = {}

    def add(self, delivery: Delivery) -> None:
        """Count a claim as lost; beyond `MOST_LOST` deliveries, forget the first."""
        self.counts[delivery.delivery_id] += 1
        if len(self.counts) > MOST_LOST:
            self.forget(next(iter(self.counts)))

    def give_back(self, delivery: Delivery) -> None:
        """Note that a claim was given back."""
        self.counts[delivery.delivery_id] -= 1
        if self.counts[delivery.delivery_id] <= 0:
            self.forget(delivery.delivery_id)

    def leave(self, delivery: Delivery, problem: str) -> None:
        """Leave a claim to its lease."""
        self._left[delivery.delivery_id] = delivery.epoch, problem

    def take_left(self, delivery: Delivery) -> str | None:
        """Return the problem of the claim just before this one, if it was left to its lease."""
        epoch, problem = self._left.pop(delivery.delivery_id, (None, ""))
        return problem if epoch == delivery.epoch - 1 else None

    def forget(self, delivery_id: str) -> None:
        """Forget a delivery: its end is stored, and it may be delivered again with all its attempts."""
        self.counts.pop(delivery_id, None)
        self._left.pop(delivery_id, None)
