"""Turn the signals to a serving process into its stop, also while a plugin blocks its loop."""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from . import exits
from .streams import say_now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..background.up import Up

Result = TypeVar("Result")

GRACE = 8.0
"""Seconds for running sessions to finish after the first signal, and for a blocked loop to hear a signal.

Containers get 10 seconds from SIGTERM to SIGKILL: the rest is for interrupted sessions to be put back, at no attempt.
"""
TOGETHER = 0.2
"""Seconds within which the same signal counts once: a process group, or a control group, gets it, and the first process
of a container or a wrapper hands it on, too.
"""
LAST = 3
"""The signal that ends the process."""
STILL_BLOCKED = "amplifier: ended while something blocks it; accepted events are stored, and the next start goes on"


class Stopper:
    """Turns signals into a stop: the first gracefully, the second at once; the third ends the process.

    A plugin may block the loop, which then hears nothing. The third signal ends the process all the same, and so do
    `GRACE` seconds without an answer to one. Nothing is lost by that: the store is durable.
    """

    def __init__(self) -> None:
        self.code = exits.OK
        self.failure: Exception | None = None
        self._asked = asyncio.Event()
        self._again = asyncio.Event()
        self._starting: asyncio.Task[Any] | None = None
        self._hung_up: Callable[[], None] = lambda: None
        self._signals = 0
        self._heard = 0
        """Of `_signals`, how many the loop has heard."""
        self._last: tuple[int, float] = (0, 0.0)
        """The last signal, and when it came."""
        self._unheard: object | None = None
        """Stands for the first signal that the loop has not heard yet."""
        self._on_a_terminal = sys.stdout.isatty()

    def __enter__(self) -> Stopper:
        loop = asyncio.get_running_loop()
        for number, code in ((signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)):
            loop.add_signal_handler(number, self._hear, code)
            signal.signal(number, partial(self._count, code))  # the loop hears of it, too: its wake-up stays
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        return self

    def __exit__(self, *exc: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        self._unheard = None  # nobody hears one of the last moment any more, and the end is on its way

    @property
    def is_asked(self) -> bool:
        """Whether a stop is requested."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Request a graceful stop."""
        self._asked.set()

    def fail(self, error: Exception) -> None:
        """Request a graceful stop that ends with `error`."""
        self.failure = error
        self._asked.set()

    def on_hangup(self, call: Callable[[], None]) -> None:
        """Call `call` at SIGHUP."""
        self._hung_up = call

    def _on_hangup(self) -> None:
        if self._on_a_terminal and not sys.stdout.isatty():  # it was closed: nobody can press Ctrl-C there
            self._stop(exits.TERMINATED)
        else:
            self._hung_up()

    def _count(self, code: int, number: int, frame: object) -> None:
        """Note a signal at once, wherever the program is."""
        now, (last, then) = time.monotonic(), self._last
        if number == last and now - then < TOGETHER:
            return
        self._last = number, now
        self._signals += 1
        if self._unheard is None:
            self._unheard = object()
            with suppress(RuntimeError):  # no thread can be started: the third signal ends a blocked loop
                _thread.start_new_thread(self._await_answer, (code, self._unheard))  # `threading` takes locks
        elif self._signals >= LAST:
            _end_blocked(code)

    def _await_answer(self, code: int, first: object) -> None:
        time.sleep(GRACE)
        if self._unheard is first:
            _end_blocked(code)

    def _hear(self, code: int) -> None:
        if self._heard < self._signals:  # else it came together with another one
            self._heard += 1
            self._stop(code)

    def _stop(self, code: int) -> None:
        self._unheard = None
        if self._again.is_set():  # something hangs; all accepted events are in the store
            os._exit(code)
        if self._asked.is_set():
            self._again.set()
        self.code = code
        self._asked.set()
        if self._starting is not None:
            self._starting.cancel()

    async def unless_asked(self, start: Awaitable[Result]) -> Result | None:
        """Return the result of `start`; a signal cancels it, then return None."""
        self._starting = asyncio.current_task()
        try:
            return await start
        except asyncio.CancelledError:
            if self._starting is None or not self.is_asked:
                raise
            self._starting.uncancel()
            return None
        finally:
            self._starting = None

    async def wait(self) -> None:
        """Wait for the first signal."""
        await self._asked.wait()

    async def stop_all(self, running: Sequence[Up]) -> None:
        """Stop the background sessions within `GRACE` seconds, or at once at the second signal."""
        async with asyncio.TaskGroup() as group:
            impatient = group.create_task(self._interrupt(running))
            await asyncio.gather(*(each.manager.stop_all(grace=GRACE) for each in running))
            impatient.cancel()

    async def _interrupt(self, running: Sequence[Up]) -> None:
        await self._again.wait()
        for each in running:
            each.manager.interrupt()


def _end_blocked(code: int) -> None:
    say_now(STILL_BLOCKED)
    os._exit(code)
