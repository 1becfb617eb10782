"""Define the contract of a store that names the queues with work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .contracts import Contract

if TYPE_CHECKING:
    from datetime import datetime


@runtime_checkable
class DueQueues(Protocol, metaclass=Contract):
    """Name the queues with work. An `Inbox` offers it so that one look serves the idle workers of all queues."""

    async def due_queues(self, project: str, *, now: datetime | None = None) -> set[str]:
        """Return the queues of a project from which `claim` may take a delivery now.

        A queue without one may be among them; one with one may not be left out.
        """
        ...
