"""Cancel the turn of a running session, as a person asks: gracefully first, then by force.

`AttemptEnd.cancel` makes a dead letter of the delivery, in one transaction with the record of its session, and then
skips it. A process that is killed before leaves a running delivery to the next start, after that a dead letter with the
reason `CANCELLED`, which the next start skips.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .live_feed import LiveFeed
    from .state import Running

CANCELLED = "cancelled by "
"""The beginning of the reason of a cancelled delivery; the name of the person follows."""
GRACE = 3.0
"""Seconds for running tools to finish, and for a model's answer to be closed."""
FORCE = 15.0
"""Seconds for a turn that is cut to store its end."""


async def cancel_delivery(running: Running, by: str) -> bool:
    """End the turn of a delivery; return whether it is cancelled: not when it ended by itself, or cannot be stored."""
    running.cancelled_by = by
    if running.spawn is not None:
        running.spawn.ask_to_stop()
    await asyncio.wait({running.task}, timeout=GRACE)
    if not running.task.done():
        if not running.is_over:
            running.task.cancel()
        await asyncio.wait({running.task}, timeout=FORCE)
    return running.is_cancelled


async def cancel_child(feed: LiveFeed, session_id: str) -> bool:
    """End the turn of a session below another one, which goes on with what is there; return whether it has ended."""
    for immediate in (False, True):
        feed.ask_to_stop(session_id, immediate=immediate)
        if await feed.wait_ended(session_id, GRACE):
            return True
    return False
