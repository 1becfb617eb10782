"""From a changed file to the change that watchfiles tells, without its debounce."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count
from pathlib import Path
from time import perf_counter

from answering import answer
from watchfiles import awatch

folder = Path(tempfile.mkdtemp(prefix="amplifier-bench-"))
numbers, told = count(), asyncio.Event()
beside: list[asyncio.Task[None]] = []


async def follow() -> None:
    async for _ in awatch(folder, debounce=0, step=1):
        told.set()


async def change() -> float:
    """Return the seconds of one."""
    if not beside:
        beside.append(asyncio.create_task(follow()))
        await asyncio.sleep(0.5)
    await asyncio.sleep(0.01)
    told.clear()
    start = perf_counter()
    (folder / "file.txt").write_text(f"change {next(numbers)}")
    async with asyncio.timeout(5):
        await told.wait()
    return perf_counter() - start


async def end() -> float:
    for task in beside:
        task.cancel()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return 0.0


answer(change=change, end=end)
