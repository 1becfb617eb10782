"""Guard the process while a plugin is loaded: its output, its working folder, its time and Ctrl-C.

A module is guarded less: it may be imported in a thread, and an SDK may take its time.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


logger = logging.getLogger(__name__)

STDOUT, STDERR = 1, 2
"""Their descriptors."""


class Guard:
    """Undoes the side effects of loading one plugin, and lists them in `faults`."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.is_late = False
        """Whether the time was up."""

    @contextmanager
    def watch(self, seconds: float) -> Iterator[None]:
        """Guard the process in the block; raise `TimeoutError` in it after `seconds`, in the main thread."""
        with self.watch_output(), self._divert_descriptor(), self._guard_working_dir(), self._guard_signals(seconds):
            yield

    @contextmanager
    def _divert_descriptor(self) -> Iterator[None]:
        """Send to stderr what a child process or C code writes to stdout; other threads, if any, would notice."""
        kept = None
        if threading.active_count() == 1:
            with suppress(OSError):  # one of them is closed
                kept = os.dup(STDOUT)
                os.dup2(STDERR, STDOUT)
        try:
            yield
        finally:
            if kept is not None:
                os.dup2(kept, STDOUT)
                os.close(kept)

    @contextmanager
    def watch_output(self) -> Iterator[None]:
        """Send to stderr what this thread prints to stdout in the block."""
        before = sys.stdout
        stdout: Any = _Stdout(before)
        sys.stdout = stdout
        try:
            yield
        finally:
            stdout.is_loading = False
            if sys.stdout is stdout:  # another thread may have replaced it, and puts it back
                sys.stdout = before
            if stdout.was_written:
                self.faults.append("it printed while it was loaded; its text went to stderr")

    @contextmanager
    def _guard_working_dir(self) -> Iterator[None]:
        try:
            before = Path.cwd()
        except OSError:  # it was deleted
            yield
            return
        try:
            yield
        finally:
            with suppress(OSError):
                if Path.cwd() != before:
                    os.chdir(before)
                    self.faults.append("it changed the working folder while it was loaded; that was undone")

    @contextmanager
    def _guard_signals(self, seconds: float) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT)}

        def on_alarm(signum: int, frame: FrameType | None) -> None:
            self.is_late = True
            raise TimeoutError(f"it took longer than {seconds:g} s to load")

        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def guard_module(name: str) -> Iterator[None]:
    """Guard the import of a module: its text for stdout goes to stderr, with a warning, and it cannot end the program.

    Raises `ModuleValidationError` where it tries to.
    """
    guard = Guard()
    try:
        with guard.watch_output():
            yield
    except SystemExit as error:
        from .cancellation import ends_program  # rarely needed

        if ends_program(error):
            raise
        from .loader import ModuleValidationError

        message = f"{name} ends the program while it is imported (SystemExit: {error}). Update it, or remove it"
        raise ModuleValidationError(message, reason_code="unknown") from error
    finally:
        for fault in guard.faults:
            logger.warning("%s: %s", name, fault)


class _Stdout:
    """Stdout for a plugin: stderr while its thread loads it, the real one if it keeps it for later."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout, self._thread = stdout, threading.get_ident()
        self.is_loading = True
        self.was_written = False

    def write(self, text: str) -> int:
        target = self._target
        self.was_written |= target is not self._stdout
        return target.write(text)

    @property
    def _target(self) -> TextIO:
        return sys.stderr if self.is_loading and threading.get_ident() == self._thread else self._stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)
