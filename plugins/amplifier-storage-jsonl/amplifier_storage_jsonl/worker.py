"""Write in one thread, so no event loop waits for a slow disk; a quick one is not worth the way to a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from amplifier_core.disk_pace import DiskPace
from amplifier_core.free_locks import call_if_free
from amplifier_core.process_forks import require_process
from amplifier_core.waking import call_in, watch_calls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")
Job: TypeAlias = "tuple[Callable[[], Any], asyncio.Future[Any]]"


class Worker:
    """Run functions in order; the first starts the thread.

    Only a future of the event loop passes between the threads: `asyncio.to_thread` takes 40 µs more, a third of the
    disk's time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._pace = DiskPace()
        self._unfinished = 0
        self._in_use = threading.Lock()
        """Held by whoever works."""
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        """The one with the thread: a fork has none, and shares with it the locks of open files."""

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`; started work is finished even for a cancelled caller.

        Raises `StoreUnavailable` in a fork of the process that began.
        """
        if self._thread is not None:
            require_process(self._process, self._path)
        loop = asyncio.get_running_loop()
        watch_calls(loop)
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._thread is None:
                # a daemon: a program without `close` ends all the same, and loses nothing acknowledged
                self._process = os.getpid()
                name = f"writer of {self._path.name}"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            self._unfinished += 1
            self._jobs.put((work, future))
        return await future

    async def run_here(self, work: Callable[[], T]) -> T | None:
        """Return the result of short work in this thread; None if other work is before it, or the disk was slow.

        None comes at once, so later work of the loop stays behind this one. After work, other tasks have a turn: what
        they write in it goes to the thread.
        """
        if not self._pace.is_quick or self._unfinished or os.getpid() != self._process:
            return None
        result, error = call_if_free(self._in_use, partial(self._carry_out, work)) or (None, None)
        if result is None and error is None:
            return None
        with self._lock:
            self._unfinished += 1
        try:
            await asyncio.sleep(0)
        finally:
            with self._lock:
                self._unfinished -= 1
        if error is not None:
            raise error
        return result

    def _carry_out(self, work: Callable[[], T]) -> tuple[T | None, Exception | None]:
        start = perf_counter()
        try:
            return work(), None
        except Exception as error:
            return None, error
        finally:
            self._pace.note(perf_counter() - start)

    def close(self) -> None:
        """Finish pending work and end the thread; idempotent."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            with self._in_use:
                result, error = self._carry_out(work)
            with self._lock:
                self._unfinished -= 1
            with suppress(RuntimeError):  # its event loop has ended, and nobody waits
                call_in(future.get_loop(), partial(_settle, future, result, error))


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
