"""A measurement in a process of its own: it is asked on standard input, and answers on standard output."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LASTING = 0.03
"""Seconds of one measurement: processes take turns, and a processor that was idle is slow at first."""


def answer(**questions: Callable[[], Awaitable[float]]) -> None:
    """Write what each question measures that is named on standard input: one a line, as JSON."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a peer that crashes at its end leaves nothing behind
    answers, sys.stdout = sys.stdout, sys.stderr  # what a package prints is no answer

    async def all_of_them() -> None:
        for line in sys.stdin:
            gc.collect()
            print(json.dumps(await questions[line.strip()]()), file=answers, flush=True)

    asyncio.run(all_of_them())


async def seconds_of(work: Callable[[], Awaitable[Any]], times: int = 0) -> float:
    """Return the seconds that one call of `work` takes: the mean of `times`, or of as many as fit in `LASTING`."""
    batch, lasting = (times, 0.0) if times else (20, LASTING)
    calls, start = 0, perf_counter()
    while True:
        for _ in range(batch):
            await work()
        calls += batch
        seconds = perf_counter() - start
        if seconds >= lasting:
            return seconds / calls


def resident() -> int:
    """Return the bytes of memory that this process has; where the system does not say, the most it ever had."""
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
