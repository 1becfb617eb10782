"""Answer Ctrl-C while no event loop does, and name the call in its way."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from . import exits

if TYPE_CHECKING:
    import asyncio
    import threading
    from collections.abc import Callable, Iterator

LOOK_EVERY = 0.5
"""Seconds between two looks at an event loop."""
LOOKS = 2
"""Looks without a turn of the loop until it counts as blocked: seconds pass for a suspended process, too."""
LAST_LOOK = 0.05
"""Seconds for a turn that is due: the looks and the loop may wake at the same moment."""


def interrupt(number: int, frame: object, *, cuts_call: bool = False) -> None:
    """Raise `KeyboardInterrupt`; within an import, end the process at once.

    An import that is interrupted may keep its lock, and another thread that imports would hold up the end for ever.
    With `cuts_call`, the call of a blocking tool has failed, and its turn is cancelled as by any Ctrl-C.
    """
    while isinstance(frame, FrameType):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"amplifier: interrupted\n")
            os._exit(exits.INTERRUPTED)
        frame = frame.f_back
    error = KeyboardInterrupt(*(["Ctrl-C has ended the call"] if cuts_call else []))
    error.cuts_call = cuts_call  # type: ignore[attr-defined]  # loops look for it
    raise error


def end_now(code: int) -> NoReturn:
    """End this process and wait for nothing; the calls of `at_process_end` are made."""
    process_ends = sys.modules.get("amplifier_core.process_ends")
    if process_ends is not None:
        process_ends.run_process_ends()
    with suppress(OSError, RuntimeError, ValueError):  # nobody reads it, a signal interrupted a write, it is closed
        sys.stderr.flush()
    os._exit(code)


class BlockWatch:
    """Names the blocking call in the event loop of a thread, from the first Ctrl-C on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the object in the thread of `loop`."""
        self.is_blocked = False
        """Whether the loop is blocked, and the person knows that Ctrl-C ends it."""
        self._loop = loop
        self._thread = _thread.get_ident()
        self._has_begun = False
        self._has_ended = False

    def begin(self) -> None:
        """Begin to watch; call this in a signal handler. Idempotent."""
        if not self._has_begun:
            self._has_begun = True
            with suppress(RuntimeError):  # no thread can be started
                _thread.start_new_thread(self._look, ())  # `threading` takes locks

    def end(self) -> None:
        """Stop watching."""
        self._has_ended = True

    def _look(self) -> None:
        from threading import Event

        from .running.terminal import tell

        while not self._has_ended:
            turned = Event()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # it is closed
                return
            if where := self._name_block(turned):
                self.is_blocked = True
                tell(f"amplifier: blocked by {where}. Ctrl-C again ends the program", fg="yellow")
                while not (turned.wait(LOOK_EVERY) or self._has_ended):
                    pass
                self.is_blocked = False
            time.sleep(LOOK_EVERY)

    def _name_block(self, turned: threading.Event) -> str:
        """Return the calls in the way of a turn of the loop: those of each look; '' after a turn, or for none."""
        from ..spawning.stalls import describe_calls, frames_of

        frames: list[FrameType] | None = None
        for _ in range(LOOKS):
            if turned.wait(LOOK_EVERY):
                return ""
            now = frames_of(self._thread)
            frames = [each for each in now if frames is None or each in frames]
        return "" if turned.wait(LAST_LOOK) else describe_calls(frames or [], of_module=True)


@contextmanager
def interrupts_to_loop() -> Iterator[None]:
    """Leave Ctrl-C to `asyncio.run` while the block runs: that looks for the handler of Python."""
    is_ours = signal.getsignal(signal.SIGINT) is interrupt
    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, interrupt)


@contextmanager
def naming_blocks(on_press: Callable[[int], object]) -> Iterator[None]:
    """While the block runs, name the blocking call in the running event loop from the first Ctrl-C on.

    `on_press` is called with the number of the signal at each Ctrl-C.

    Outside the main thread nothing changes: only the main thread gets signals.
    """
    from asyncio import get_running_loop
    from threading import current_thread, main_thread

    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(before):
        yield
        return
    watch, answer = BlockWatch(get_running_loop()), before

    def on_signal(number: int, frame: FrameType | None) -> None:
        watch.begin()
        on_press(number)
        answer(number, frame)

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        watch.end()
        signal.signal(signal.SIGINT, before)
