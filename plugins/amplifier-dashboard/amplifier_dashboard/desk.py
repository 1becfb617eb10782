"""Hold what all views and acts share: the store, the plugins, the person who acts, and news of changes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

LOOK = 0.15
"""Seconds between two looks at a store that tells of no changes."""


@dataclass(slots=True)
class Desk:
    """Where a person works: read through `store`, act as `person`."""

    store: DurableStore
    plugins: Plugins
    person: str
    project: str
    """The folder in which the page was started."""
    read_only: bool = False
    changes: Changes = field(default_factory=lambda: Changes())


class Changes:
    """Counts the changes of the store, and wakes those who wait for the next."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def note(self) -> None:
        """Wake all who wait; call this in the loop of the server."""
        self.count += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, count: int) -> int:
        """Return the number of changes once it differs from `count`."""
        while self.count == count:
            await self._changed.wait()
        return self.count

    @asynccontextmanager
    async def following(self, store: Any) -> AsyncIterator[None]:
        """Note the changes of a store while the block runs."""
        from amplifier_foundation.background.tasks import run_beside

        listen = getattr(store, "listen", None)
        if listen is None:
            async with run_beside(self._look(), "changes"):
                yield
            return
        loop = asyncio.get_running_loop()
        stop = listen(lambda: loop.call_soon_threadsafe(self.note))
        try:
            yield
        finally:
            stop()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self.note()
