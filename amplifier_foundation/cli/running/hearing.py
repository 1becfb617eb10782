"""Handle a signal in the main thread at once, also while it waits in C code for a line."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from threading import Thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUDGE = signal.SIGURG
"""A signal without another meaning: it interrupts a wait, and ends no process."""
AGAIN = 0.02
"""Seconds between two nudges of the main thread."""


@contextmanager
def heard_at_once(number: int, handler: Callable[[int, object], None]) -> Iterator[None]:
    """Call `handler` for each signal while the block runs; enter the block in the main thread.

    `readline` notices signals only while it waits. A signal just before, while it draws the prompt or takes a key,
    would wait until the end of the line. So nudges follow each signal until one interrupts the wait; then `handler` is
    called, once for each signal.
    """
    hearing = _Hearing(number, handler)
    reading, told = os.pipe()
    os.set_blocking(told, False)
    before = (
        signal.signal(NUDGE, hearing.on_nudge),
        signal.signal(number, lambda *_: None),
    )  # with a handler, the number is written to the wake-up pipe
    descriptor = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    thread = Thread(target=hearing.nudge, args=(reading,), name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        os.close(told)
        thread.join()
        os.close(reading)
        signal.signal(number, before[1])
        signal.signal(NUDGE, before[0])


class _Hearing:
    """One signal on its way to the main thread.

    It has no lock, because a handler may interrupt itself. `input` breaks when a handler runs after another one has
    raised; so the nudge calls the handler: its signal has the higher number and runs last.
    """

    def __init__(self, number: int, handler: Callable[[int, object], None]) -> None:
        self._number = number
        self._handler = handler
        self._is_due = False

    def on_nudge(self, number: int, frame: object) -> None:
        """Call the handler if the signal is due."""
        if self._is_due:
            self._is_due = False
            self._handler(self._number, frame)

    def nudge(self, reading: int) -> None:
        """Nudge the main thread for every signal until it is handled; return when the pipe is closed."""
        main = main_thread().ident
        assert main is not None  # a started thread has one
        while numbers := os.read(reading, 64):
            for _ in range(numbers.count(self._number)):
                self._is_due = True
                while self._is_due:
                    signal.pthread_kill(main, NUDGE)
                    time.sleep(AGAIN)
