"""Guard the process while a plugin is loaded: its output, its working folder, its time and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Guard:
    """Undoes the side effects of loading one plugin, and lists them in `faults`.

    `interrupted` is true after a real Ctrl-C: any other `KeyboardInterrupt` is the plugin's own.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.interrupted = False
        self.is_late = False
        """Whether the time was up."""

    @contextmanager
    def watch(self, seconds: float) -> Iterator[None]:
        """Guard the process in the block; raise `TimeoutError` in it after `seconds`, in the main thread."""
        with self._guard_stdout(), self._guard_working_dir(), self._guard_signals(seconds):
            yield

    @contextmanager
    def _guard_stdout(self) -> Iterator[None]:
        stdout = _Stdout(sys.stdout)
        try:
            with redirect_stdout(stdout):
                yield
        finally:
            stdout.is_loading = False
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

        def on_interrupt(signum: int, frame: FrameType | None) -> None:
            self.interrupted = True
            handler = before[signal.SIGINT]
            if callable(handler):
                handler(signum, frame)

        signal.signal(signal.SIGALRM, on_alarm)
        if callable(before[signal.SIGINT]):
            signal.signal(signal.SIGINT, on_interrupt)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


class _Stdout:
    """Stdout for a plugin: stderr while it is loaded, the real one if it keeps it for later."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout
        self.is_loading = True
        self.was_written = False

    def write(self, text: str) -> int:
        self.was_written |= self.is_loading
        return self._target.write(text)

    @property
    def _target(self) -> TextIO:
        return sys.stderr if self.is_loading else self._stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)
