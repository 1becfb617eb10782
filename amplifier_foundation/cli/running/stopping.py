"""What Ctrl-C does to a turn: once, it stops after this step; twice, at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from .terminal import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from amplifier_core.session import AmplifierSession

    from .approving import Approvals

Result = TypeVar("Result")

GRACE = 2.0
"""Seconds that a turn gets to end by itself when it was told to stop at once."""
PATIENCE = 4
"""How many times Ctrl-C is handed on; then it ends the program, whatever keeps the turn."""


class TurnCut(Exception):
    """The turn did not end by itself when it was told to, and was cut."""


class Stops:
    """Stops one turn when somebody presses Ctrl-C; make a new one for each."""

    def __init__(self, approvals: Approvals) -> None:
        self.at_once = False
        """Whether the turn was told to stop at once."""
        self._approvals = approvals
        self._presses = asyncio.Semaphore(0)
        self._is_cut = False

    def press(self) -> None:
        """Note that Ctrl-C was pressed; to be called in the thread of the event loop."""
        self._presses.release()

    async def obeyed(self, session: AmplifierSession, turn: Coroutine[Any, Any, Result]) -> Result:
        """Await a turn of `session`; raises `TurnCut` when it had to be cut, else what the turn raises."""
        task = asyncio.current_task()
        assert task is not None  # a coroutine that runs on an event loop is always some task's
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                stopper = group.create_task(self._stop(session, task))
                try:
                    return await turn
                except Exception as error:  # which the group would wrap
                    failure = error
                finally:
                    stopper.cancel()
        except asyncio.CancelledError:
            if not self._is_cut:
                raise
            task.uncancel()
            raise TurnCut from None
        assert failure is not None  # a turn returns or raises
        raise failure

    async def _stop(self, session: AmplifierSession, task: asyncio.Task[Any]) -> None:
        await self._presses.acquire()
        tell("stopping after this step; Ctrl-C again to stop now", fg="yellow")
        self._approvals.give_up()
        await session.coordinator.request_cancel()
        await self._presses.acquire()
        tell("stopping now", fg="yellow")
        self.at_once = True
        self._approvals.give_up()
        await session.coordinator.request_cancel(immediate=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._presses.acquire()
        self._is_cut = True
        task.cancel()


@contextmanager
def interrupts_to(press: Callable[[], None]) -> Iterator[None]:
    """Call `press` in the running event loop for every Ctrl-C while the block runs.

    Where the program is not run by its main thread, which alone learns of signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    # A signal that comes just before the loop waits does not wake it; what the loop is told of by its own means does.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    signal.signal(signal.SIGINT, handler_of(loop, press))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


def handler_of(loop: asyncio.AbstractEventLoop, press: Callable[[], None]) -> Callable[[int, object], None]:
    """Return a signal handler that hands on the first presses, and raises `KeyboardInterrupt` from then on."""
    presses = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal presses
        presses += 1
        if presses >= PATIENCE:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(press)

    return on_signal
