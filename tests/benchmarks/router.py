"""The router beside a queue for each subscriber, a bare `asyncio.Queue`, and blinker's signals."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from amplifier_foundation.events import EventRouter

from .environment import peers_python
from .measure import Row, in_turns
from .peers import OURS
from .worker import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

logger = logging.getLogger(__name__)

SUBSCRIBERS = {1: 1 / 2.5, 10: 1 / 4, 1_000: 1 / 6}
"""How many read, and the goal: times what a queue for each takes."""
LATENCY = 1.5  # goal: times asyncio.Queue
MEMORY = 300 * 10**6  # goal: bytes

NAME, DATA = "work:completed", {"task_id": "123", "n": 1}
BURST = 100
"""Events that are emitted before the readers get to run; what fits in the queues."""


async def rows() -> AsyncIterator[Row]:
    """Emit to 1, 10 and 1,000 readers; wake one; let a million events wait."""
    for readers, at_most in SUBSCRIBERS.items():
        bursts = max(2, 200 // readers)
        rounds = 15 if readers < 1_000 else 5
        candidates = (EventRouter, QueuePerSubscriber, BareQueues)
        ours, limit, queue = await in_turns(
            *(partial(_delivered, make, readers, bursts) for make in candidates), rounds=rounds
        )
        what = f"an event emitted, and read by {readers:,}"
        yield Row(f"{what} / a queue for each", ours, limit, at_most_ratio=at_most)
        yield Row(f"{what} / asyncio.Queue", ours, queue)
    async for row in _beside_blinker():
        yield row
    ours, limit = await in_turns(partial(_latency, EventRouter), partial(_latency, BareQueues), rounds=15)
    yield Row("from emit to a reader that waits, median / asyncio.Queue", ours, limit, at_most_ratio=LATENCY)
    async with worker(OURS, "backlog") as process:
        yield Row("memory of 1,000,000 events that wait", await process.measure("memory"), at_most=MEMORY, unit="B")
        yield Row("events lost of these", await process.measure("lost"), at_most=0, unit="")


class Router(Protocol):
    """What is measured."""

    async def emit(self, event_name: str, data: dict[str, Any], source_session_id: str | None = None) -> Any: ...
    def subscribe(self, event_names: list[str]) -> AsyncIterator[Any]: ...


async def _delivered(make: Callable[[], Router], readers: int, bursts: int) -> float:
    """Return the seconds that one event takes, from `emit` until all have read it."""
    router = make()
    async with _reading(router, readers):
        start = perf_counter()
        for _ in range(bursts):
            for _ in range(BURST):
                await router.emit(NAME, DATA, "session-1")
            await _settle()
        return (perf_counter() - start) / (bursts * BURST)


async def _latency(make: Callable[[], Router]) -> float:
    """Return the median of the seconds from an `emit` until the reader goes on."""
    router, taken = make(), list[float]()
    start = 0.0

    def read(event: Any) -> None:
        taken.append(perf_counter() - start)

    async with _reading(router, 1, read):
        for _ in range(1_000):
            start = perf_counter()
            await router.emit(NAME, DATA, "session-1")
            await _settle()
    assert len(taken) == 1_000
    return median(taken)


@asynccontextmanager
async def _reading(router: Router, readers: int, read: Callable[[Any], None] | None = None) -> AsyncIterator[None]:
    async def run(events: AsyncIterator[Any]) -> None:
        if read is None:
            async for _ in events:
                pass
        else:
            async for event in events:
                read(event)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(router.subscribe([NAME]))) for _ in range(readers)]
        await _settle()
        yield
        for task in tasks:
            task.cancel()


async def _settle() -> None:
    """Let every reader that is woken read all there is."""
    for _ in range(3):
        await asyncio.sleep(0)


async def _beside_blinker() -> AsyncIterator[Row]:
    peers = peers_python()
    async with AsyncExitStack() as processes:
        asking = [await processes.enter_async_context(worker(peers, "signals"))] if peers else []
        for readers in SUBSCRIBERS:
            samples = [partial(_delivered, EventRouter, readers, max(2, 200 // readers))]
            samples += [each.sample(f"send_{readers}") for each in asking]
            ours, *theirs = await in_turns(*samples, rounds=5)
            limit = theirs[0] if theirs else None
            yield Row(f"an event emitted, and read by {readers:,} / blinker", ours, limit, note="not installed")


@dataclass
class Note:
    """An event as it is handed to every queue."""

    name: str
    data: dict[str, Any]
    source_session_id: str | None
    timestamp: datetime


class QueuePerSubscriber:
    """The plain way: a lock, a queue for each subscriber, and an event put into each of them."""

    def __init__(self) -> None:
        self._queues: dict[str, list[asyncio.Queue[Note]]] = defaultdict(list)
        self._lock = asyncio.Lock()

    async def emit(self, event_name: str, data: dict[str, Any], source_session_id: str | None = None) -> None:
        """Put an event into the queues of its name and of `*`."""
        note = Note(event_name, data, source_session_id, datetime.now(UTC))
        async with self._lock:
            for name in (event_name, "*"):
                for queue in self._queues.get(name, []):
                    try:
                        queue.put_nowait(note)
                    except asyncio.QueueFull:
                        logger.warning("the queue of a subscriber to %s is full", name)
        logger.debug("%s was emitted to %d subscribers", event_name, len(self._queues.get(event_name, [])))

    async def subscribe(self, event_names: list[str]) -> AsyncIterator[Note]:
        """Yield what is put into a queue of one's own."""
        queue: asyncio.Queue[Note] = asyncio.Queue(maxsize=BURST)
        async with self._lock:
            for name in event_names:
                self._queues[name].append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            async with self._lock:
                for name in event_names:
                    self._queues[name].remove(queue)


class BareQueues:
    """A queue for each reader, and nothing else: no names, no events, no lock."""

    def __init__(self) -> None:
        self._queues: list[asyncio.Queue[dict[str, Any]]] = []

    async def emit(self, event_name: str, data: dict[str, Any], source_session_id: str | None = None) -> None:
        """Put the data into every queue."""
        for queue in self._queues:
            queue.put_nowait(data)

    async def subscribe(self, event_names: list[str]) -> AsyncIterator[dict[str, Any]]:
        """Yield what is put into a queue of one's own."""
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._queues.append(queue)
        while True:
            yield await queue.get()
