"""Notice an event loop that a blocking call holds up, and say where its thread is, or a task."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import contextmanager, suppress
from inspect import isasyncgen
from time import monotonic
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Self

STALL = 1.0
"""Seconds without a turn of the loop until it is reported."""
LOOK_EVERY = 0.5
"""Seconds."""
MOST_CALLS = 12
"""Calls in a reported stack."""
CALLERS = ("amplifier_core.", "amplifier_foundation.", "amplifier_loop_")
"""What the names of those begin with that call tools and other modules."""


@frozen
class Stall:
    """A loop that has not turned for `seconds`; `stack` has its calls, the innermost first."""

    seconds: float
    stack: str


class StallWatch:
    """Asks each watched loop for an answer, in a thread of its own, and reports a stall once."""

    def __init__(self) -> None:
        self._watched: dict[_Watched, None] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def watch(self, loop: asyncio.AbstractEventLoop, thread: int, report: Callable[[Stall], None]) -> Iterator[None]:
        """Watch the loop of a thread while the block runs; `report` is called in the thread of the watch."""
        watched = _Watched(loop, thread, report)
        self._watched[watched] = None
        try:
            yield
        finally:
            del self._watched[watched]

    def _run(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            for each in list(self._watched):
                each.look()


class _Watched:
    """One loop: asked, then answered or reported, then asked again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int, report: Callable[[Stall], None]) -> None:
        self._loop = loop
        self._thread = thread
        self._report = report
        self._answered = True
        self._asked_at = 0.0
        self._looks = 0

    def look(self) -> None:
        """Report the loop when it has not answered for `STALL` seconds.

        Looks are counted, not seconds: a suspended machine or process stalls nothing.
        """
        if self._answered:
            self._answered, self._asked_at, self._looks = False, monotonic(), 0
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._answer)
            return
        self._looks += 1
        if self._looks == STALL / LOOK_EVERY:
            stack = stack_of(self._thread)
            if not self._answered:
                self._report(Stall(monotonic() - self._asked_at, stack))

    def _answer(self) -> None:
        self._answered = True


def stack_of(thread: int) -> str:
    """Return the calls of a thread up to its event loop, the innermost first."""
    return describe_calls(frames_of(thread))


def frames_of(thread: int) -> list[FrameType]:
    """Return the frames of a thread up to its event loop, the innermost first."""
    frame: FrameType | None = sys._current_frames().get(thread)
    frames: list[FrameType] = []
    while frame is not None and _module_of(frame) != "asyncio.events":
        frames.append(frame)
        frame = frame.f_back
    return frames


def stack_of_task(task: asyncio.Task[Any]) -> str:
    """Return the calls of a waiting task, the innermost first: `Task.get_stack` has the outermost alone."""
    return stack_of_coroutine(task.get_coro())


def stack_of_coroutine(awaited: Any, *, of_module: bool = False) -> str:
    """Return the calls of a waiting coroutine, the innermost first, as `describe_calls` does."""
    frames: list[FrameType] = []
    while awaited is not None:
        for prefix, awaits in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            if (frame := getattr(awaited, f"{prefix}_frame", None)) is not None:
                frames.append(frame)
                awaited = getattr(awaited, awaits)
                break
        else:  # a step of an asynchronous generator does not tell whose it is
            awaited = next(filter(isasyncgen, gc.get_referents(awaited)), None)
    return describe_calls(frames[::-1], of_module=of_module)


def describe_calls(frames: list[FrameType], *, of_module: bool = False) -> str:
    """Return the calls of frames, the innermost first; '' for none.

    `of_module` leaves out the callers of a tool or another module, as far as they are known.
    """
    calls: list[str] = []
    for frame in frames[:MOST_CALLS]:
        if of_module and calls and _module_of(frame).startswith(CALLERS):
            break
        calls.append(f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})")
    return " < ".join(calls)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
