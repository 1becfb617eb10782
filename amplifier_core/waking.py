"""Call functions in an event loop from another thread, as `call_soon_threadsafe` does at more cost.

A loop watches one `eventfd` for all stores. Where there is none (outside Linux), or for a loop that watches no files,
`call_soon_threadsafe` does it.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, finalize

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_WAKERS: WeakKeyDictionary[asyncio.AbstractEventLoop, Waker | None] = WeakKeyDictionary()


class Waker:
    """Run functions in the loop that watches `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[Callable[[], None]] = deque()

    def call(self, function: Callable[[], None]) -> None:
        """Let the loop call a function; usable from any thread."""
        self._waiting.append(function)
        os.eventfd_write(self._descriptor, 1)

    def run(self) -> None:
        """Call the waiting functions."""
        os.eventfd_read(self._descriptor)  # first: whoever adds one from here on wakes the loop again
        while self._waiting:
            self._waiting.popleft()()


def watch_calls(loop: asyncio.AbstractEventLoop) -> None:
    """Let `loop`, which runs in this thread, watch for calls; idempotent."""
    if loop in _WAKERS:
        return
    _WAKERS[loop] = None
    if hasattr(os, "eventfd"):
        descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        waker = Waker(descriptor)
        try:
            loop.add_reader(descriptor, waker.run)
        except NotImplementedError:
            os.close(descriptor)
            return
        finalize(loop, os.close, descriptor)  # not before: the loop would take another file of its number for it
        _WAKERS[loop] = waker


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Let a loop call a function, from any thread. Raises `RuntimeError` for a closed loop, or drops the call."""
    waker = _WAKERS.get(loop)
    (loop.call_soon_threadsafe if waker is None else waker.call)(function)
