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
from .. import exits
from ..interrupting import BlockWatch, end_now, interrupt
from ..streams import say_now
from .terminal import own_terminal, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence

    from amplifier_core.session import AmplifierSession

    from .approving import Approvals

Result = TypeVar("Result")

GRACE = 2.0
"""Seconds for a turn to end by itself after the second Ctrl-C."""
PATIENCE = 5
"""The press of Ctrl-C that ends the program, whatever hears the others."""


class TurnCut(Exception):
    """The turn did not end by itself after a stop at once, and was cancelled."""


class Stops:
    """Stops one turn on Ctrl-C; make a new object for each turn."""

    def __init__(self, approvals: Approvals) -> None:
        self.at_once = False
        """Whether Ctrl-C was pressed twice."""
        self.at_end: Callable[[], None] = lambda: None
        """Called before a turn that goes on ends the process: shows the result."""
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
                stopper = group.create_task(self._stop(session, task, turn))
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
                trace = error.__traceback__  # its place is where the turn waits, or in the task awaited, and not here
                step = partial(turn.throw, error.with_traceback(trace and trace.tb_next))

    async def _stop(self, session: AmplifierSession, task: asyncio.Task[Any], turn: Coroutine[Any, Any, Any]) -> None:
        """Stop the turn of `task` by steps, one for each press; end the process if the turn goes on after the last.

        The third press cancels it, as does the time. It may clean up then: the next press ends the process.
        """
        await self._presses.acquire()
        if self._presses.locked():  # else the next press was heard with it
            tell(self._first, fg="yellow")
        self._approvals.give_up()
        await session.coordinator.request_cancel()
        await self._presses.acquire()
        running = session.coordinator.cancellation.running_tool_names
        tell(f"stopping now{_describe(running)}", fg="yellow")
        self.at_once = True
        self._approvals.give_up()
        await session.coordinator.request_cancel(immediate=True)
        is_third = await self._is_pressed()
        self._is_cut = True
        task.cancel()
        if not (await self._is_pressed() and is_third):
            where = _describe_wait(task, turn)
            tell(f"the turn goes on although it was cancelled: {where}. Ctrl-C ends the program", fg="yellow")
            await self._presses.acquire()
        try:
            self.at_end()
        finally:
            tell(f"amplifier: ended while the turn goes on: {_describe_wait(task, turn)}")
            tell(f"amplifier: continue with: amplifier run --resume {session.session_id}")
            end_now(exits.INTERRUPTED)

    async def _is_pressed(self) -> bool:
        """Wait for a press for `GRACE` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                return await self._presses.acquire()
        # A loop that was blocked hears the press and the end of the time together.
        return not self._presses.locked() and await self._presses.acquire()


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


def _describe_wait(task: asyncio.Task[Any], turn: Coroutine[Any, Any, Any]) -> str:
    """Return where the cancelled `turn` of a task waits, or the tasks that it has begun."""
    from ...spawning.stalls import stack_of_coroutine

    within = [each.get_coro() for each in asyncio.all_tasks() - {task} if each.cancelling()]
    return plain("; ".join(sorted(stack_of_coroutine(each, of_module=True) for each in within or [turn])))


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
    handler = Interrupts(press)
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        handler.end()
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


class Interrupts:
    """The handler of Ctrl-C for the running event loop: calls `press` there.

    A call in its way is named for the person, and the next press raises `KeyboardInterrupt` in it, as does press
    `patience`. If it goes on, or is in another thread, the process ends.
    """

    def __init__(self, press: Callable[[], None], patience: float = PATIENCE) -> None:
        self._press = press
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._watch = BlockWatch(self._loop)
        self._is_main = threading.current_thread() is threading.main_thread()
        self._presses = 0
        self._has_raised = False

    def __call__(self, number: int, frame: object) -> None:
        self._presses += 1
        self._watch.begin()
        self._loop.call_soon_threadsafe(self._press)
        if not self._watch.is_blocked and self._presses < self._patience:
            return
        if self._has_raised or not self._is_main:
            say_now("amplifier: interrupted")
            end_now(exits.INTERRUPTED)
        self._has_raised = True
        interrupt(number, frame, cuts_call=True)

    def end(self) -> None:
        """Stop watching the loop."""
        self._watch.end()
