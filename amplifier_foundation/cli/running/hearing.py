"""Call functions and handle signals in the main thread at once, also while it waits in C code for a line."""

from __future__ import annotations

import os
import signal
from collections import deque
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread, main_thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NUDGE = signal.SIGURG
"""A signal without another meaning: it interrupts a wait, and ends no process."""
AGAIN = 0.02
"""Seconds between two nudges of the main thread."""
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end a conversation without a word."""


class WasSuspended(Exception):
    """The program was suspended at a question, and goes on: a shell has used the screen meanwhile.

    No further signal is handled until `settle` is called.
    """

    def __init__(self, settle: Callable[[], None]) -> None:
        super().__init__()
        self.settle = settle


@contextmanager
def heard_at_once(handlers: Mapping[int, Callable[[int, object], None]]) -> Iterator[MainThread]:
    """Call the handler of each signal in `handlers` while the block runs; enter the block in the main thread.

    `readline` notices signals only while it waits. A signal just before, while it draws the prompt or takes a key,
    would wait until the end of the line. So nudges follow each signal until one interrupts the wait; then its handler
    is called, once for each signal. Other signals with a handler are heard as well.
    """
    main = MainThread()

    def hand_on() -> None:
        while numbers := os.read(reading, 64):
            for each in numbers:
                if each != NUDGE:
                    main.call(partial(handlers[each], each, None) if each in handlers else _notice)

    reading, told = os.pipe()
    os.set_blocking(told, False)
    before: dict[int, Any] = {NUDGE: signal.signal(NUDGE, main.on_nudge)}
    for number in handlers:
        before[number] = signal.signal(number, lambda *_: None)  # so the number is written to the wake-up pipe
    descriptor = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    thread = Thread(target=hand_on, name="signals", daemon=True)
    thread.start()
    try:
        yield main
    finally:
        main.end()  # else the thread waits for this one with a call, and this one for the thread
        signal.set_wakeup_fd(descriptor)
        os.close(told)
        thread.join()
        os.close(reading)
        for number, earlier in reversed(before.items()):
            signal.signal(number, earlier)


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
    one has raised; so the nudge makes the calls: its signal has the higher number and runs last. After a call that has
    raised, the next one waits for `settle`.
    """

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()
        self._is_settled = Event()
        self._is_settled.set()
        self._has_ended = False

    def on_nudge(self, number: int, frame: object) -> None:
        """Make the next call, if one is due."""
        try:
            work = self._due.popleft()
        except IndexError:
            return
        work()

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` in the main thread, and return when it has ended; call this in another thread.

        After `end`, nothing is called.
        """
        begun, ended = Event(), Event()

        def work() -> None:
            begun.set()
            try:
                function()
            except BaseException:
                self._is_settled.clear()
                raise
            finally:
                ended.set()

        self._due.append(work)
        main = main_thread().ident
        assert main is not None  # a started thread has one
        while not begun.is_set():
            self._is_settled.wait()
            if self._has_ended:
                return
            signal.pthread_kill(main, NUDGE)
            begun.wait(AGAIN)
        ended.wait()

    def settle(self) -> None:
        """Let calls go on after one that has raised: its error was caught; call this in the main thread."""
        self._is_settled.set()

    def end(self) -> None:
        """Make no call any more; call this in the main thread."""
        self._has_ended = True
        self._due.clear()
        self._is_settled.set()
