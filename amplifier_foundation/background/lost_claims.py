"""Remember the claims of deliveries that could not be given back: the store counts them as attempts."""

from __future__ import annotations

from collections import Counter

MOST_LOST = 100
"""Deliveries with lost claims that a process remembers."""


class LostClaims(Counter[str]):
    """Counts them by the id of the delivery."""

    def add(self, delivery_id: str) -> None:
        """Count a claim as lost until it is given back; beyond `MOST_LOST` deliveries, forget the first."""
        self[delivery_id] += 1
        if len(self) > MOST_LOST:
            del self[next(iter(self))]

    def give_back(self, delivery_id: str) -> None:
        """Note that a claim was given back."""
        self[delivery_id] -= 1
        if self[delivery_id] <= 0:
            del self[delivery_id]
