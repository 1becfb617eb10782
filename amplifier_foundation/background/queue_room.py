"""Bound the events that wait in the queue of a background session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.frozen import slotted

if TYPE_CHECKING:
    from amplifier_core.clock import Clock
    from amplifier_core.storage import Inbox

RECOUNT = 1.0
"""Seconds between two counts of a full queue, at the least."""
CALM = 30.0
"""Seconds with room for every event, after which the queue counts as full no more."""
FULL = "queue"
"""The component with the problem while its queue is full."""


@slotted
class QueueRoom:
    """The room for further events, at most `most` in all.

    After a count, as many events as have room are let in without another one. A full queue takes none until a tenth
    of it is free.
    """

    most: int
    clock: Clock
    _places: int = 0
    _is_full: bool = False
    _counted_at: float = float("-inf")
    _refused_at: float = float("-inf")

    @property
    def is_calm(self) -> bool:
        """Whether no event was without a place lately."""
        return self.clock.monotonic() - self._refused_at >= CALM

    async def take(self, store: Inbox, project: str, queue: str) -> bool:
        """Take a place for one event; return False if there is none."""
        if self._places == 0 and not (self._is_full and self.clock.monotonic() - self._counted_at < RECOUNT):
            self._counted_at = self.clock.monotonic()
            rows = await store.delivery_counts(project=project, queue=queue)
            waiting = sum(row.counts.get("pending", 0) for row in rows)
            self._is_full = waiting > (self.most * 9 // 10 if self._is_full else self.most - 1)
            self._places = 0 if self._is_full else self.most - waiting
        if self._places == 0:
            self._refused_at = self.clock.monotonic()
            return False
        self._places -= 1
        return True
