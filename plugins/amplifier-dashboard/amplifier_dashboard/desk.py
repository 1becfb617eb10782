"""Hold what all views and acts share: the store, the plugins, the person who acts, and news of changes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import slotted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from .talks import Talks

LOOK = 1.0
"""Seconds between two looks at the processes that run."""


@slotted
class Desk:
    """Where a person works: read through `store`, act as `person`."""

    store: DurableStore
    plugins: Plugins
    person: str
    project: str
    """The folder in which the page was started."""
    read_only: bool = False
    changes: Changes = field(default_factory=lambda: Changes())
    kept: dict[str, Any] = field(default_factory=dict)
    """What views keep between two readings, by the name of their module."""
    talks: Talks = field(init=False)
    """The turns that people begin in the page."""

    def __post_init__(self) -> None:
        from .talks import Talks

        self.talks = Talks()


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
    async def following(self, store: DurableStore) -> AsyncIterator[None]:
        """Note the changes of a store, and processes that begin or end, while the block runs."""
        from amplifier_foundation.background.tasks import keep_beside
        from amplifier_foundation.sessions.store_views import views_of

        loop = asyncio.get_running_loop()

        def told() -> None:
            loop.call_soon_threadsafe(self.note)

        stop = views_of(store).watch_commits(told)
        try:
            async with keep_beside(self._watch_processes, "look at processes"):
                yield
        finally:
            stop()

    async def _watch_processes(self) -> None:
        """Note the begin and the end of processes: a killed one writes nothing to the store."""
        from amplifier_foundation.sessions.lock import running_owners

        before = await asyncio.to_thread(running_owners)
        while True:
            await asyncio.sleep(LOOK)
            now = await asyncio.to_thread(running_owners)
            if now != before:
                before = now
                self.note()
