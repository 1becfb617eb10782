"""Watch the event loop and the process while code of others runs, and name what it held up or left behind."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .store_checks.rules import require

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONGEST_BLOCK = 1.0
"""Seconds that code may keep the event loop from everything else."""
_TICK, _LONGEST_TICK = 0.05, 0.2
_TURNS = 5
"""Turns of the event loop for tasks that were cancelled to end."""
_LEAVING = 1.0
"""Seconds for a thread to end after its work."""


class LoopWatch:
    """A thread that notices a blocked event loop. A loop that waits for a processor is not blocked."""

    def __init__(self) -> None:
        self.longest = 0.0
        """Seconds of the longest block."""
        self.place = ""
        """The place in the code that blocked."""
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        self._statistics = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._missed, self._starved = 0.0, self._read_starved()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="amplifier-loop-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _tick(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_TICK):
            now = time.monotonic()
            self._missed += min(now - before, _LONGEST_TICK)  # a longer one: this thread itself had to wait
            before = now
            if self._missed > self.longest:
                self._look()
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._beat)

    def _look(self) -> None:
        self.longest = max(self.longest, self._missed - (self._read_starved() - self._starved))
        if self.longest >= LONGEST_BLOCK and (frame := sys._current_frames().get(self._thread_id)):
            line = traceback.extract_stack(frame)[-1]
            self.place = self.place or f"{Path(line.filename).name}, line {line.lineno}"

    def _read_starved(self) -> float:
        """Return the seconds for which the thread of the loop waited for a processor; 0 where no system tells it."""
        try:
            return int(self._statistics.read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def _beat(self) -> None:
        self._missed, self._starved = 0.0, self._read_starved()


@asynccontextmanager
async def watch_process(what: str) -> AsyncIterator[None]:
    """Require that the code in the block does not block the event loop for long, and leaves no task and no thread.

    Daemon threads may stay: a client that is shared by sessions may keep one.

    Raises `AssertionError` with `what`, and the place or the name of the thing.
    """
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    watch = LoopWatch()
    try:
        yield
    finally:
        watch.end()
    require(
        watch.longest < LONGEST_BLOCK,
        f"{what} must not block the event loop; it did for {watch.longest:.1f} s ({watch.place}): "
        "await what waits, or run it with asyncio.to_thread",
    )
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    left = [_name_of(task) for task in asyncio.all_tasks() - tasks if not task.done()]
    require(not left, f"{what} must leave no task running; it left {', '.join(left)}: cancel and await it")
    started = [each for each in threading.enumerate() if each not in threads and not _may_stay(each)]
    for thread in started:
        thread.join(_LEAVING / len(started))
    names = [thread.name for thread in started if thread.is_alive()]
    require(not names, f"{what} must leave no thread running; it left {', '.join(names)}: end and join it")


def _may_stay(thread: threading.Thread) -> bool:
    """Return whether a thread holds up no end of the process: a daemon, or one of the event loop's own."""
    return thread.daemon or thread.name.startswith("asyncio_")


def _name_of(task: asyncio.Task[object]) -> str:
    return getattr(task.get_coro(), "__qualname__", "") or task.get_name()
