"""The router beside a queue for each subscriber, a bare `asyncio.Queue`, and packages that call functions."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import tracemalloc
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from amplifier_foundation.events import EventRouter

from .environment import peers_python
from .measure import Figure, Row, awaited, curve, in_turns
from .peers import OURS
from .worker import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .measure import Sample

logger = logging.getLogger(__name__)

SUBSCRIBERS = {1: 1 / 2.5, 10: 1 / 4, 1_000: 1 / 6}
"""How many read, and the goal: times what a queue for each takes."""
LATENCY = 1.5  # goal: times asyncio.Queue
MEMORY = 1 / 3  # goal: times a deque of the same events
QUEUE = 0.5  # goal: times a queue for each
CALLING = "blinker", "pyee"
"""Peers that call functions."""
READERS = 1, 20, 500, 10_000
EVENTS = 1_000_000
WAITING = 8_000, 32_000, 96_000, 256_000
"""Events before a reader, for a curve."""
SLICE = 4_096
"""Events that are emitted and read at each point of it; the blocks of the log hold a quarter."""

NAME, DATA = "work:completed", {"task_id": "123", "n": 1}
BURST = 100
"""Events that are emitted before the readers get to run; what fits in the queues."""


async def deliveries(readers: int, at_most: float) -> AsyncIterator[Row]:
    """Emit to so many readers."""
    candidates = (EventRouter, QueuePerSubscriber, BareQueues)
    samples = [partial(_delivered, make, readers, max(2, 200 // readers)) for make in candidates]
    ours, limit, queue = await in_turns(*samples, rounds=15 if readers < 1_000 else 7)
    what = f"an event emitted, and read by {readers:,}"
    yield Row(f"{what} / a queue for each", ours, limit, at_most_ratio=at_most)
    yield Row(f"{what} / asyncio.Queue", ours, queue)


async def latency() -> AsyncIterator[Row]:
    """Wake one reader."""
    ours, limit = await in_turns(partial(_latency, EventRouter), partial(_latency, BareQueues), rounds=15)
    yield Row("from emit to a reader that waits, median / asyncio.Queue", ours, limit, at_most_ratio=LATENCY)


async def backlog() -> AsyncIterator[Row]:
    """Let a million events wait."""
    async with worker(OURS, "backlog") as process, worker(OURS, "backlog") as reference:
        memory, limit = await process.measure("memory"), await reference.measure("by_hand")
        what = f"memory of {EVENTS:,} events that wait / a deque of them"
        yield Row(what, memory, limit, at_most_ratio=MEMORY, unit="B")
        yield Row("events lost of these", await process.measure("lost"), EVENTS, at_most_ratio=0, unit="")


async def waiting() -> AsyncIterator[Row]:
    """Emit and read where more and more events wait.

    Up to `LOOSE` blocks of them are kept as they are, and more are packed: an event that waits so long takes twice the
    time of one that is read soon. The curve begins where all but those are packed.
    """
    emitted, read = await _behind_a_backlog(rounds=5)
    yield curve("an event emitted where so many wait", list(zip(WAITING, emitted, strict=True)))
    yield curve("an event read where so many wait", list(zip(WAITING, read, strict=True)))


async def beside_callbacks() -> AsyncIterator[Row]:
    """Emit to as many as blinker and pyee call, one after the other, while they emit."""
    peers = peers_python()
    async with AsyncExitStack() as processes:
        asking = [await processes.enter_async_context(worker(peers, "signals"))] if peers else []
        for readers in SUBSCRIBERS:
            samples: list[Sample] = [partial(_delivered, EventRouter, readers, max(2, 200 // readers))]
            samples += [each.sample(f"{name}_{readers}") for each in asking for name in CALLING]
            ours, *theirs = await in_turns(*samples, rounds=5)
            for name, limit in zip_longest(CALLING, theirs):
                yield Row(f"an event emitted, and read by {readers:,} / {name}", ours, limit, note="not installed")


async def subscribers() -> AsyncIterator[Row]:
    """Emit to more and more subscribers, with one filter and with a filter each; weigh them beside queues."""
    shared = await in_turns(*(partial(_delivered, EventRouter, size, max(1, 20 // size)) for size in READERS), rounds=7)
    each = [Figure(taken / size for taken in figure.rounds) for size, figure in zip(READERS, shared, strict=True)]
    yield curve("an event read, by the number of its readers", list(zip(READERS, each, strict=True)))
    emitted = await in_turns(*map(_emitting_beside, READERS), rounds=7)
    yield curve("an event emitted, by the number of other filters", list(zip(READERS, emitted, strict=True)))
    subscribe, queue = partial(EventRouter().subscribe, [NAME]), partial(asyncio.Queue[Any], BURST)
    sizes = [(_weigh(size, subscribe), _weigh(size, queue)) for size in READERS]
    what = "memory of a subscriber, by their number"
    yield curve(what, [(size, ours / size) for size, (ours, _) in zip(READERS, sizes, strict=True)], unit="B")
    ours, limit = sizes[-1]
    yield Row(f"memory of {READERS[-1]:,} subscribers / asyncio.Queue", ours, limit, at_most_ratio=QUEUE, unit="B")


def _emitting_beside(filters: int) -> Sample:
    """Return what an event takes that nobody reads, beside subscribers to so many other names."""
    router = EventRouter()
    open_ones = [router.subscribe([f"other-{number}:*"]) for number in range(filters)]

    async def sample() -> float:
        assert len(open_ones) == filters
        return await awaited(lambda: router.emit(NAME, DATA, "session-1"), 1_000)()

    return sample


def _weigh(count: int, make: Callable[[], Any]) -> int:
    """Return the bytes of so many objects."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = [make() for _ in range(count)]
        return tracemalloc.get_traced_memory()[0] - sys.getsizeof(kept)
    finally:
        tracemalloc.stop()


PARTS = (
    *(partial(deliveries, readers, at_most) for readers, at_most in SUBSCRIBERS.items()),
    beside_callbacks,
    latency,
    backlog,
    waiting,
    subscribers,
)


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


async def _behind_a_backlog(rounds: int) -> tuple[list[Figure], list[Figure]]:
    """Return the seconds of an event emitted and of one read, for each number of events that wait."""
    emitted, read = ([list[float]() for _ in WAITING] for _ in range(2))
    for _ in range(rounds):
        router, there = EventRouter(), 0
        stream = aiter(router.subscribe([NAME], queue_size=None))
        for size, emits, reads in zip(WAITING, emitted, read, strict=True):
            await awaited(lambda: router.emit(NAME, DATA, "session-1"), size - there)()  # noqa: B023
            gc.collect()
            emits.append(await awaited(lambda: router.emit(NAME, DATA, "session-1"), SLICE)())  # noqa: B023
            reads.append(await awaited(lambda: anext(stream), SLICE)())  # noqa: B023
            there = size
    return list(map(Figure, emitted)), list(map(Figure, read))


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
