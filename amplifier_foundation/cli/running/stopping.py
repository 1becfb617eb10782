"""Stop a turn: after the current step on one Ctrl-C, or when nobody reads its output; at once on two."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager, suppress
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core.cancellation import as_failure

from ...documents.safe_text import plain
from ..interrupting import interrupt
from .terminal import own_terminal, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence

    from amplifier_core.session import AmplifierSession

    from .approving import Approvals

Result = TypeVar("Result")

GRACE = 2.0
"""Seconds for a turn to end by itself after the second Ctrl-C."""
PATIENCE = 4
"""The press of Ctrl-C that ends the program, even if the turn hangs."""


class TurnCut(Exception):
    """The turn did not end by itself after a stop at once, and was cancelled."""


class Stops:
    """Stops one turn on Ctrl-C; make a new object for each turn."""

    def __init__(self, approvals: Approvals) -> None:
        self.at_once = False
        """Whether Ctrl-C was pressed twice."""
        self._approvals = approvals
        self._presses = asyncio.Semaphore(0)
        self._first = ""
        """The line of the first stop; '' before it."""
        self._is_cut = False
        self._own_cancellations = 0
        """How often the turn has cancelled its own task and not taken it back: nobody else wants its end."""

    def press(self) -> None:
        """Record a press of Ctrl-C; call this in the thread of the event loop."""
        self._first = self._first or "stopping after this step; Ctrl-C again stops now"
        self._presses.release()

    def stop_unread(self) -> None:
        """Stop after the current step, as nobody reads the output; where a person stops the turn, it stays at that."""
        if not self._first:
            self._first = "nobody reads the output: stopping after this step; Ctrl-C stops now"
            self._presses.release()

    async def watch(self, session: AmplifierSession, turn: Coroutine[Any, Any, Result]) -> Result:
        """Await a turn of `session`; Ctrl-C stops it. Raises `TurnCut` after a cancellation, and errors of the turn."""
        task = asyncio.current_task()
        assert task is not None  # a running coroutine has a task
        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                stopper = group.create_task(self._stop(session, task))
                try:
                    return await self._drive(turn, task)
                except (Exception, SystemExit) as error:  # the group would wrap it; a module has no say in our end
                    failure = as_failure(error)
                finally:
                    stopper.cancel()
        except asyncio.CancelledError as error:
            if self._is_cut:
                task.uncancel()
                raise TurnCut from None
            for _ in range(self._own_cancellations):
                task.uncancel()
            raise as_failure(error) from None
        assert failure is not None  # a turn returns or raises
        raise failure

    @coroutine
    def _drive(self, turn: Coroutine[Any, Any, Result], task: asyncio.Task[Any]) -> Generator[Any, Any, Result]:
        """Run `turn` in `task`, the current one, and count the cancellations of the task that the turn asks for."""
        step = partial(turn.send, None)
        while True:
            before = task.cancelling()
            try:
                waiting_for = step()
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                self._own_cancellations = max(0, self._own_cancellations + task.cancelling() - before)
            try:
                step = partial(turn.send, (yield waiting_for))
            except BaseException as error:
                step = partial(turn.throw, error.with_traceback(None))  # its place is where the turn waits

    async def _stop(self, session: AmplifierSession, task: asyncio.Task[Any]) -> None:
        await self._presses.acquire()
        tell(self._first, fg="yellow")
        self._approvals.give_up()
        await session.coordinator.request_cancel()
        await self._presses.acquire()
        running = session.coordinator.cancellation.running_tool_names
        tell(f"stopping now{_describe(running)}", fg="yellow")
        self.at_once = True
        self._approvals.give_up()
        await session.coordinator.request_cancel(immediate=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._presses.acquire()
        self._is_cut = True
        task.cancel()


class Presses:
    """Hands each press of Ctrl-C to whoever listens; one that nobody hears waits for the next listener."""

    def __init__(self) -> None:
        self._listener: Callable[[], None] | None = None
        self._unheard = 0

    def press(self) -> None:
        """Take a press."""
        if self._listener is None:
            self._unheard += 1
        else:
            self._listener()

    @contextmanager
    def to(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` for each press while the block runs, and for those that nobody has heard."""
        self._listener = listener
        for _ in range(self._unheard):
            listener()
        self._unheard = 0
        try:
            yield
        finally:
            self._listener = None


def _describe(running: Sequence[str]) -> str:
    """Return which running tools a stop at once cuts off; '' for none: the first press has ended the model's answer."""
    if not running:
        return ""
    counts = {name: running.count(name) for name in sorted(running)}
    tools = ", ".join(f"{name} ({count} calls)" if count > 1 else name for name, count in counts.items())
    return f": {plain(tools)} {'is' if len(running) == 1 else 'are'} cut off"


@contextmanager
def interrupts_to(press: Callable[[], None]) -> Iterator[None]:
    """Call `press` in the running event loop for every Ctrl-C while the block runs.

    Outside the main thread nothing changes: only the main thread gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    # A signal just before the loop waits does not wake it; the wake-up of the loop's own handler does.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    signal.signal(signal.SIGINT, handler_of(loop, press))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


@contextmanager
def returns_to(show: Callable[[], None]) -> Iterator[None]:
    """Call `show` in the running event loop each time this program goes on at its terminal after a suspension.

    Outside the main thread nothing changes: only the main thread gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCONT, lambda: show() if own_terminal() is not None else None)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)


def handler_of(loop: asyncio.AbstractEventLoop, press: Callable[[], None]) -> Callable[[int, object], None]:
    """Return a signal handler for Ctrl-C: it calls `press`, and at press `PATIENCE` raises `KeyboardInterrupt`."""
    presses = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal presses
        presses += 1
        if presses >= PATIENCE:
            interrupt(number, frame)
        loop.call_soon_threadsafe(press)

    return on_signal
