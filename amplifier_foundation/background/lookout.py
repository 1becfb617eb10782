"""Look at the store for the idle workers of all background sessions at once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

from amplifier_core.cancellation import run_guarded
from amplifier_core.due_queues import DueQueues

from .queue_room import FULL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .state import BackgroundSessionState, Engine


class Lookout:
    """Wakes the workers of queues with work every `Engine.poll` seconds, and reports late refusals and calm queues.

    Other processes accept events too, leases end, and clocks are set. One look costs the same for one background
    session and for a thousand idle ones. A store that is no `DueQueues` has none: there each worker looks by itself.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._served: dict[str, dict[str, BackgroundSessionState]] = {}
        self._looking: asyncio.Task[None] | None = None
        self.refusing: dict[str, BackgroundSessionState] = {}
        """Background sessions that may have unreported refusals, by their ids."""
        self.full: dict[str, BackgroundSessionState] = {}
        """Background sessions whose queues count as full, by their ids: until they have been calm for a while."""
        self.looks = isinstance(engine.store, DueQueues)
        """Whether it looks in place of the workers."""

    @asynccontextmanager
    async def serving(self, background: BackgroundSessionState) -> AsyncIterator[None]:
        """Wake the workers of a background session while the block runs."""
        served = self._served.setdefault(background.project, {})
        served[background.queue] = background
        if self._looking is None:
            self._looking = asyncio.create_task(self._run(), name="lookout")
        try:
            yield
        finally:
            del served[background.queue]
            if not any(self._served.values()) and self._looking is not None:
                looking, self._looking = self._looking, None
                looking.cancel()
                with suppress(asyncio.CancelledError):
                    await looking

    async def _run(self) -> None:
        while True:
            await self._engine.clock.sleep(self._engine.poll)
            for background in list(self.refusing.values()):
                self._engine.report_refusals(background)
            for background in [each for each in self.full.values() if each.room.is_calm]:
                del self.full[background.session_id]
                self._engine.clear_problem(background, FULL)
            if self.looks:
                await self._look()

    async def _look(self) -> None:
        """Wake the workers with work; all of them when the store fails: each says so in its status."""
        for project, served in list(self._served.items()):
            try:
                queues = await run_guarded(self._find_due(project))
            except Exception:  # a damaged store, or a mistake in one: the look goes on, or no worker would look again
                queues = set(served)
            for queue in queues & served.keys():
                served[queue].wake.set()

    async def _find_due(self, project: str) -> set[str]:
        now = self._engine.clock.now() if self._engine.member is None else None  # hosts go by the clock of their store
        return await cast("DueQueues", self._engine.store).due_queues(project, now=now)
