"""Call functions and handle a signal in the main thread at once, also while it waits in C code for a line."""

from __future__ import annotations

import os
import signal
from collections import deque
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread, main_thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUDGE = signal.SIGURG
"""A signal without another meaning: it interrupts a wait, and ends no process."""
AGAIN = 0.02
"""Seconds between two nudges of the main thread."""
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end a conversation without a word."""


@contextmanager
def heard_at_once(number: int, handler: Callable[[int, object], None]) -> Iterator[MainThread]:
    """Call `handler` for each signal while the block runs; enter the block in the main thread.

    `readline` notices signals only while it waits. A signal just before, while it draws the prompt or takes a key,
    would wait until the end of the line. So nudges follow each signal until one interrupts the wait; then `handler` is
    called, once for each signal. Other signals with a handler are heard as well.
    """
    main = MainThread()

    def hand_on() -> None:
        while numbers := os.read(reading, 64):
            for each in numbers:
                if each != NUDGE:
                    main.call(partial(handler, number, None) if each == number else _notice)

    reading, told = os.pipe()
    os.set_blocking(told, False)
    before = (
        signal.signal(NUDGE, main.on_nudge),
        signal.signal(number, lambda *_: None),
    )  # with a handler, the number is written to the wake-up pipe
    descriptor = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    thread = Thread(target=hand_on, name="signals", daemon=True)
    thread.start()
    try:
        yield main
    finally:
        signal.set_wakeup_fd(descriptor)
        os.close(told)
        thread.join()
        os.close(reading)
        signal.signal(number, before[1])
        signal.signal(NUDGE, before[0])


@contextmanager
def called_before_end(call: Callable[[], None]) -> Iterator[None]:
    """Call `call` before one of `ENDING` ends this process; enter the block in the main thread."""

    def end(number: int, frame: object) -> None:
        call()
        signal.signal(number, before[number])
        signal.raise_signal(number)

    heard = [each for each in ENDING if signal.getsignal(each) not in (signal.SIG_IGN, None)]  # None: C code handles it
    before: dict[int, Any] = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _notice() -> None:
    """Do nothing: Python has called the handlers of the signals before."""


class MainThread:
    """Calls functions of other threads in the main thread.

    It has no lock, because a call may be interrupted by another one. `input` breaks when a handler runs after another
    one has raised; so the nudge makes the calls: its signal has the higher number and runs last.
    """

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()

    def on_nudge(self, number: int, frame: object) -> None:
        """Make the next call, if one is due."""
        try:
            work = self._due.popleft()
        except IndexError:
            return
        work()

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` in the main thread, and return when it has ended; call this in another thread."""
        begun, ended = Event(), Event()

        def work() -> None:
            begun.set()
            try:
                function()
            finally:
                ended.set()

        self._due.append(work)
        main = main_thread().ident
        assert main is not None  # a started thread has one
        while not begun.is_set():
            signal.pthread_kill(main, NUDGE)
            begun.wait(AGAIN)
        ended.wait()
