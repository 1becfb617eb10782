"""Ask a person in the main thread, while sessions run in an event loop of another thread."""

from __future__ import annotations

import asyncio
import math
import os
import queue
import signal
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from .. import exits
from ..loops import run_async
from .hearing import MainThread, WasSuspended, heard_at_once
from .stopping import Interrupts
from .terminal import own_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

Result = TypeVar("Result")


def _always() -> bool:
    return True


class PressedInterrupt(Exception):
    """Ctrl-C was pressed at a question."""


class Foreground:
    """Runs a program on an event loop in a thread of its own, and its calls of `call` in the main thread.

    Only the main thread can be interrupted while it edits a line, and sessions do not wait for the person.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[], bool], Future[Any]] | None]
        self._jobs = queue.SimpleQueue()
        self._main_thread = MainThread()
        self._is_asking = False
        self._is_waiting = _always
        """Whether the question waits for the person."""
        self._on_press: Callable[[int, object], None] | None = None
        self._on_unheard: Callable[[int, object], None] | None = None
        """Ends a program that is blocked, where `_on_press` is None."""
        self._on_return: Callable[[], object] | None = None
        self._has_ended = False
        """Whether the program has ended: its loop waits for what plugins have left running."""

    def run(self, program: Coroutine[Any, Any, Result]) -> Result:
        """Run `program` to its end and return its result or raise its error; call this in the main thread."""
        outcome: Future[Result] = Future()
        thread = Thread(target=self._live, args=(program, outcome), name="sessions", daemon=True)
        heard: dict[int, Callable[[int, object], None]] = {
            signal.SIGINT: self._on_signal,
            signal.SIGCONT: self._on_continue,
        }
        with heard_at_once(heard) as self._main_thread:
            thread.start()
            while (job := self._jobs.get()) is not None:
                self._do(*job)
            thread.join()
        return outcome.result()

    def _live(self, program: Coroutine[Any, Any, Result], outcome: Future[Result]) -> None:
        try:
            outcome.set_result(run_async(self._note_end(program)))
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            self._jobs.put(None)

    async def _note_end(self, program: Coroutine[Any, Any, Result]) -> Result:
        unheard = self._on_unheard = Interrupts(lambda: None, math.inf)
        try:
            return await program
        finally:
            self._has_ended = True
            unheard.end()

    def _do(self, function: Callable[[], Any], is_waiting: Callable[[], bool], outcome: Future[Any]) -> None:
        self._is_waiting = is_waiting
        while True:
            try:
                try:
                    self._is_asking = True
                    self._main_thread.settle()
                    value = function()
                finally:
                    self._is_asking = False
            except WasSuspended:
                continue
            except KeyboardInterrupt:
                outcome.set_exception(PressedInterrupt())
            except BaseException as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(value)
            self._is_asking = False  # a signal may have interrupted that above
            self._main_thread.settle()
            return

    def _on_signal(self, number: int, frame: object) -> None:
        if self._is_asking:
            raise KeyboardInterrupt
        if self._on_press is not None:
            self._on_press(number, frame)
        elif self._has_ended:
            os._exit(exits.INTERRUPTED)
        elif self._on_unheard is not None:
            self._on_unheard(number, frame)

    def _on_continue(self, number: int, frame: object) -> None:
        if own_terminal() is None:  # it goes on in the background
            return
        if self._is_asking:
            if self._is_waiting():
                raise WasSuspended(self._main_thread.settle)
        elif self._on_return is not None:
            self._on_return()

    async def call(self, function: Callable[[], Result], is_waiting: Callable[[], bool] = _always) -> Result:
        """Await `function()`, called in the main thread. Raises its errors, and `PressedInterrupt` at Ctrl-C.

        After a suspension while `is_waiting()` is true, it is called again, unless it handles `WasSuspended`.
        """
        outcome: Future[Result] = Future()
        self._jobs.put((function, is_waiting, outcome))
        return await asyncio.wrap_future(outcome)

    def call_at_once(self, function: Callable[[], None]) -> None:
        """Call `function` in the main thread, also while a question is open there; call this in another thread."""
        self._main_thread.call(function)

    @contextmanager
    def interrupts_to(self, press: Callable[[], None]) -> Iterator[None]:
        """Call `press` in the event loop for every Ctrl-C while the block runs, except at a question."""
        handler = self._on_press = Interrupts(press)
        try:
            yield
        finally:
            handler.end()
            self._on_press = None

    @contextmanager
    def returns_to(self, show: Callable[[], None]) -> Iterator[None]:
        """Call `show` in the event loop each time this program is back at the terminal, except at a question."""
        self._on_return = partial(asyncio.get_running_loop().call_soon_threadsafe, show)
        try:
            yield
        finally:
            self._on_return = None
