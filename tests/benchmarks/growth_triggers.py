"""How the cost grows of what is declared and watched: files, timers, background sessions.

The largest tree has 500,000 files; it is made once, and kept in build/bench-trees.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .large_trees import make_tree
from .measure import LINEAR, Figure, Row, curve, in_turns
from .worker import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from .worker import Worker

OURS = Path(sys.executable)
FILES, TIMERS, SESSIONS = (10, 400, 15_000, 500_000), (1, 100, 10_000, 100_000), (1, 10, 100, 1_000)
IDLE_AT_MOST = 2.0
"""Times a loop that waits for the same, and does nothing: both are a ten-thousandth of a processor."""
EVENT_AT_MOST = 2_000 / 600
"""Goal: 2 kB in the store; an event is some 600 bytes of JSON."""
LOOKS_AT_MOST = 2.0
"""Times a loop that asks SQLite for the same once a second: which queues have work, and where the log ends."""
START_AT_MOST = 20.0
"""Times a transaction with one row: a start checks the configuration, makes the trigger, reads and stores its state."""
YOUNG = 2.1
"""Seconds for which the watcher reads a file anew, as it may be written twice within one time stamp."""


async def arming_of_files() -> AsyncIterator[Row]:
    for files in FILES:
        await asyncio.to_thread(make_tree, files)
    await asyncio.sleep(YOUNG)
    async with worker(OURS, "watching") as process:
        armed = await in_turns(*(process.sample(f"arm_{files}") for files in FILES), rounds=5)
    yield curve("files watched, processor time until armed", _points(FILES, armed), at_most=LINEAR)


async def watched_files() -> AsyncIterator[Row]:
    async with _open(["watching"] * (len(FILES) + 1)) as (bare, *processes):
        await bare.measure("bare")
        grown = [await process.measure(f"keep_{files}") for files, process in zip(FILES, processes, strict=True)]
        yield curve("memory of watched files", _points(FILES, map(_once, grown)), at_most=LINEAR, unit="B")
        yield Row(f"  of one of {FILES[-1]:,}", grown[-1] / FILES[-1], unit="B")
        state = [await process.measure("state_bytes") for process in processes]
        yield curve("their state, as it is stored once", _points(FILES, map(_once, state)), at_most=LINEAR, unit="B")
        for question, what in (("change", "a change"), ("folder", "a new folder")):
            taken = await in_turns(*(process.sample(question) for process in processes), rounds=11)
            yield curve(f"processor time from {what} to its stored event, files watched", _points(FILES, taken))
        stored = await in_turns(*(process.sample("event_bytes") for process in processes), rounds=5)
        yield curve("room in the store for an event, files watched", _points(FILES, stored), unit="B")
        text = await processes[-1].measure("json_bytes")
        yield Row("  of 500,000 / the event as JSON", stored[-1], text, at_most_ratio=EVENT_AT_MOST, unit="B")
        least, *idle = await _idle([bare, *processes])
        yield curve("processor time of an idle second, files watched", _points(FILES, idle))
        yield Row("  of 500,000 / of one folder by inotify alone", idle[-1], least, at_most_ratio=IDLE_AT_MOST)


async def sleeping_timers() -> AsyncIterator[Row]:
    async with _open(["sleeping_timers"] * (len(TIMERS) + 1)) as (bare, *processes):
        grown = [await process.measure(f"sleep_{timers}") for timers, process in zip(TIMERS, processes, strict=True)]
        armed = await in_turns(*(process.sample("arm") for process in processes), rounds=5)
        yield curve("processor time to arm one more timer, timers", _points(TIMERS, armed))
        ticks = await in_turns(*(process.sample("tick") for process in processes), rounds=7)
        yield curve("processor time of one tick, timers", _points(TIMERS, ticks))
        least, *idle = await _idle([bare, *processes])
        yield curve("processor time of an idle second, timers", _points(TIMERS, idle))
        yield Row("  of 100,000 / of a loop without any", idle[-1], least, at_most_ratio=IDLE_AT_MOST)
        sizes = [each * timers for each, timers in zip(grown, TIMERS, strict=True)]
        yield curve("memory of timers", _points(TIMERS, map(_once, sizes)), at_most=LINEAR, unit="B")
        yield Row("  of one of 100,000", grown[-1], unit="B")


async def declared_sessions() -> AsyncIterator[Row]:
    async with _open(["declared"] * (len(SESSIONS) + 1)) as (bare, *processes):
        await bare.measure("bare")
        starts = (each.sample(f"start_{n}") for n, each in zip(SESSIONS, processes, strict=True))
        commit, *started = await in_turns(bare.sample("commit"), *starts, rounds=5)
        yield curve("background sessions, until all are armed", _points(SESSIONS, started), at_most=LINEAR)
        one = started[-1] / SESSIONS[-1]
        yield Row("  one of 1,000 / a one-row transaction", one, commit, at_most_ratio=START_AT_MOST)
        least, *idle = await _idle([bare, *processes])
        yield curve("processor time of an idle second, background sessions", _points(SESSIONS, idle))
        yield Row("  of 1,000 / of a loop that asks SQLite as often", idle[-1], least, at_most_ratio=LOOKS_AT_MOST)
        kept = [await each.measure(f"memory_{n}") * n for n, each in zip(SESSIONS, processes, strict=True)]
        yield curve("memory of background sessions", _points(SESSIONS, map(_once, kept)), at_most=LINEAR, unit="B")
        yield Row("  of one of 1,000", kept[-1] / SESSIONS[-1], unit="B")


PARTS = (arming_of_files, watched_files, sleeping_timers, declared_sessions)


@asynccontextmanager
async def _open(scripts: Sequence[str]) -> AsyncIterator[list[Worker]]:
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(worker(OURS, script)) for script in scripts]
        yield processes
        for each in processes:
            await each.measure("end")


def _points(sizes: Sequence[int], figures: object) -> list[tuple[int, float]]:
    return list(zip(sizes, figures, strict=True))  # type: ignore[call-overload]


def _once(figure: float) -> Figure:
    return Figure([figure])


async def _idle(processes: Sequence[Worker], rounds: int = 7) -> list[Figure]:
    """Ask all at once: who does nothing disturbs nobody."""
    asked = [await asyncio.gather(*(each.measure("idle") for each in processes)) for _ in range(rounds)]
    return [Figure(figures) for figures in zip(*asked, strict=True)]
