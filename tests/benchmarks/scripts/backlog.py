"""A million events for a reader that has not begun to read: what they weigh, and whether all of them arrive.

Asked for `by_hand`, the process keeps the same events in a deque.
"""

from __future__ import annotations

import gc
import resource
from collections import deque
from pathlib import Path

from answering import answer

from amplifier_foundation.events import EventRouter, SessionEvent

EVENTS = 1_000_000

router = EventRouter()
slow = router.subscribe(["work:*"], queue_size=None)
waiting: deque[SessionEvent] = deque()


def _memory() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


async def memory() -> float:
    """Return the bytes that the process grew by."""
    gc.collect()
    before = _memory()
    for number in range(EVENTS):
        await router.emit("work:done", {"task_id": str(number), "n": number}, "session-1")
    return _memory() - before


async def by_hand() -> float:
    """Return the bytes that the process grew by, with a deque instead of the router."""
    gc.collect()
    before = _memory()
    for number in range(EVENTS):
        data = {"task_id": str(number), "n": number}
        waiting.append(SessionEvent("work:done", data, "session-1", sequence=number))
    return _memory() - before


async def lost() -> float:
    """Return how many of the events are not read, or not in their order."""
    number = 0
    async for event in slow:
        if event.data["n"] != number:
            break
        number += 1
        if number == EVENTS:
            break
    return EVENTS - number


answer(memory=memory, by_hand=by_hand, lost=lost)
