"""A signal that the main thread hears at once, also while it waits in C for a line."""

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
"""What interrupts a wait and means nothing else: it ends no process that does not listen for it."""
AGAIN = 0.02
"""Seconds after which a main thread that has not heard is nudged again."""


@contextmanager
def heard_at_once(number: int, handler: Callable[[int, object], None]) -> Iterator[None]:
    """Call `handler` in the main thread, which is this one, whenever the signal comes while the block runs.

    `readline` looks for signals only when one interrupts its waiting: one that comes a moment before, while it draws
    the prompt or takes a key, would not be heard before the line has ended. That is why a signal is followed by
    nudges, until one of them has interrupted something; it is then that `handler` is called, once for each signal.
    """
    hearing = _Hearing(number, handler)
    reading, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.signal(NUDGE, hearing.on_nudge), signal.signal(number, _ignored)
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


def _ignored(number: int, frame: object) -> None:
    """Do nothing: the number of a signal that has such a handler is written to the pipe of wake-ups."""


class _Hearing:
    """One signal, on its way to the main thread.

    No lock guards it: a handler may interrupt itself. And `input` cannot bear that a handler runs when another one has
    raised: that is why the nudge calls the handler, whose number is the higher one and which thus runs last.
    """

    def __init__(self, number: int, handler: Callable[[int, object], None]) -> None:
        self._number = number
        self._handler = handler
        self._is_due = False

    def on_nudge(self, number: int, frame: object) -> None:
        """Hand on a signal that is due."""
        if self._is_due:
            self._is_due = False
            self._handler(self._number, frame)

    def nudge(self, reading: int) -> None:
        """Nudge the main thread for every signal that is told, until it has heard; return when the pipe is closed."""
        main = main_thread().ident
        assert main is not None  # a thread that has begun has one
        while numbers := os.read(reading, 64):
            for _ in range(numbers.count(self._number)):
                self._is_due = True
                while self._is_due:
                    signal.pthread_kill(main, NUDGE)
                    time.sleep(AGAIN)
