"""Pass events from requests to the trigger, and the news of their storage back."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING

from amplifier_core.errors import QueueFull

if TYPE_CHECKING:
    from types import TracebackType

    from amplifier_core.triggers import TriggerEvent


class PendingRequest:
    """One event, and a request that waits for its storage.

    The trigger yields the event inside `with`; leaving the block before `mark_stored` means that it was not stored.
    """

    def __init__(self, event: TriggerEvent) -> None:
        self.event = event
        self.stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def mark_stored(self) -> None:
        """Tell the request that its event is stored."""
        self.settle(0)

    def settle(self, retry_after: int) -> None:
        """Tell the request that its event is stored (0), or the seconds until its next try; the first call counts."""
        if not self.stored.done():
            self.stored.set_result(retry_after)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle(error.retry_after if isinstance(error, QueueFull) else 1)


class PendingRequests:
    """A queue of events to yield, in their order; after `close`, none of them is yielded."""

    def __init__(self) -> None:
        self.closed = False
        self._failure: Exception | None = None
        self._waiting: deque[PendingRequest] = deque()
        self._news = asyncio.Event()
        self._reading: dict[asyncio.Timeout, str] = {}

    async def submit(self, event: TriggerEvent) -> int:
        """Queue the event and wait; return 0 when it is stored, else the seconds until it may be tried again.

        An event cancelled in the queue is never yielded.
        """
        if self.closed:
            return 1
        pending = PendingRequest(event)
        self._waiting.append(pending)
        self._news.set()
        return await pending.stored

    async def next(self) -> PendingRequest | None:
        """Return the next event with a request that still waits, or None after `close`. Raises the error of `fail`."""
        while not self.closed:
            while self._waiting:
                pending = self._waiting.popleft()
                if not pending.stored.done():
                    return pending
            self._news.clear()
            await self._news.wait()
        if self._failure is not None:
            raise self._failure
        return None

    def begin_reading(self, limit: asyncio.Timeout, address: str) -> None:
        """Note the time limit of a body from `address`; `close` ends it."""
        self._reading[limit] = address

    def end_reading(self, limit: asyncio.Timeout) -> bool:
        """Forget the time limit of a body; return False if it was given up."""
        return self._reading.pop(limit, None) is not None

    def give_up_reader(self) -> bool:
        """End the body that is read longest, of the address with the most of them; return False if none is read."""
        if not self._reading:
            return False
        [(busiest, _)] = Counter(self._reading.values()).most_common(1)
        oldest = next(limit for limit, address in self._reading.items() if address == busiest)
        del self._reading[oldest]
        oldest.reschedule(0)
        return True

    def fail(self, error: Exception) -> None:
        """Close, and have `next` raise the error."""
        self._failure = error
        self.close()

    def close(self) -> None:
        """Release all requests but the one in storage; the trigger settles that one."""
        self.closed = True
        self._news.set()
        while self._waiting:
            self._waiting.popleft().settle(1)
        for limit in self._reading:
            limit.reschedule(0)
        self._reading.clear()
