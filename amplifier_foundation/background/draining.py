"""Wait until everything is handled: the end of `amplifier up --once`."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .manager import BackgroundSessionManager

QUIET = 1.0
"""Seconds without work until nothing more is expected of a trigger without `caught_up()`."""
SETTLED = 0.1
"""The same seconds where every trigger has one."""
LOOK_EVERY = 0.05
"""Seconds."""


async def drain(managers: Sequence[BackgroundSessionManager]) -> bool:
    """Return when every trigger is caught up and every accepted event is handled; stop the triggers before.

    Events accepted while the triggers stop are handled too. Postponed events, and events of paused background sessions,
    stay for the next start, and so do the times that come meanwhile: a timer that is quicker than its turns would never
    end. False when an event was given up or a trigger has failed.
    """
    watches = [watch for manager in managers for watch in manager.list_watches()]
    knows = all(watch.knows_when_caught_up for watch in watches)
    while not all(watch.is_settled for watch in watches):  # noqa: ASYNC110 - a trigger tells nobody
        await asyncio.sleep(LOOK_EVERY)
    await asyncio.gather(*(watch.stop() for watch in watches if watch.fires_by_clock))
    await _wait_until_idle(managers, caught_up=True, quiet=SETTLED if knows else QUIET)
    await asyncio.gather(*(manager.stop_triggers() for manager in managers))
    await _wait_until_idle(managers)
    return not any(manager.has_trouble for manager in managers)


async def _wait_until_idle(
    managers: Sequence[BackgroundSessionManager], *, caught_up: bool = False, quiet: float = 0.0
) -> None:
    idle_since: float | None = None
    while idle_since is None or monotonic() - idle_since < quiet:
        await asyncio.sleep(LOOK_EVERY)
        try:
            idle = all([await manager.is_idle(caught_up=caught_up) for manager in managers])
        except StoreUnavailable:  # it may hold deliveries all the same
            idle = False
        idle_since = (idle_since or monotonic()) if idle else None
