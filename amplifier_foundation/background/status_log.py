"""Write the changes of a background session's status, and its stalls, to the log of events.

The store may take them later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import Clock, wait_for
from amplifier_core.errors import StoreUnavailable
from amplifier_core.frozen import slotted

from ..sessions.recording import shield_to_completion
from .log_events import BACKGROUND_STATE

if TYPE_CHECKING:
    from ..events import EventRouter

MOST = 1_000
"""Changes kept while the store cannot be written; the oldest go first."""
PAUSE = timedelta(seconds=1)


@slotted
class StatusLog:
    """The changes and stalls of one background session that are not in the log of events yet."""

    router: EventRouter
    clock: Clock
    session_id: str
    _changes: deque[tuple[str, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=MOST))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, change: dict[str, Any], event: str = BACKGROUND_STATE) -> None:
        """Note a change, now."""
        self._changes.append((event, {**change, "at": self.clock.now().isoformat()}))
        self._changed.set()

    async def run(self) -> None:
        """Write changes as they come, until cancelled; while the store cannot be written, keep them."""
        task = asyncio.current_task()
        while True:
            self._changed.clear()
            if await self.write():
                await self._changed.wait()
            elif task is not None and task.cancelling():  # its cancellation met a store that could not be written
                raise asyncio.CancelledError
            else:
                await wait_for(self.clock, asyncio.Event(), self.clock.now() + PAUSE)

    async def write(self) -> bool:
        """Write the changes in their order; return whether the store took all of them."""
        while self._changes:
            change = self._changes.popleft()  # before it is written: `run` and a stop may both write
            try:
                project = change[1]["project"]
                await shield_to_completion(self.router.emit(*change, self.session_id, project=project))
            except StoreUnavailable:
                self._changes.appendleft(change)
                return False
        return True
