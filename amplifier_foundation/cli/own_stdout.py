"""Keep stdout for the output of a command: prints of modules, and of programs that they start, go to stderr."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from amplifier_core.plugin_guard import STDERR, STDOUT

from .log_lines import PresentStderr
from .streams import WaitingFile, open_waiting

if TYPE_CHECKING:
    from collections.abc import Iterator


class Diverted(PresentStderr):
    """What modules get as stdout. No print of theirs fails, and nothing that they do to it reaches stderr itself."""

    def write(self, text: str) -> int:
        """Write a text where stderr takes it."""
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Write what waits."""
        with suppress(OSError, ValueError):  # a module may have closed the buffer
            self.buffer.flush()
        with suppress(OSError):
            super().flush()

    def close(self) -> None:
        """Close nothing: stderr belongs to the program."""

    def detach(self) -> io.BufferedWriter:
        """Return the buffer."""
        return self.buffer

    @cached_property
    def buffer(self) -> io.BufferedWriter:
        """A buffer of its own."""
        return io.BufferedWriter(WaitingFile(STDERR, "wb", closefd=False))

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


_kept: list[TextIO] = []
"""Stdout itself while a `divert_stdout` runs."""


def own_stdout() -> TextIO:
    """Return stdout itself, also while a `divert_stdout` runs."""
    return _kept[-1] if _kept else sys.stdout


@contextmanager
def divert_stdout(is_wanted: bool = True) -> Iterator[None]:
    """Send to stderr what is written to stdout in the block, but not what is written to `own_stdout`.

    The descriptor is diverted, too: C code and programs write to it, and so do modules that keep `sys.stdout`.
    """
    stdout = sys.stdout
    if stdout is None or not is_wanted:  # None: it is closed
        yield
        return
    kept = _take_descriptor(stdout)
    diverted: Any = Diverted()
    _kept.append(kept or stdout)
    sys.stdout = diverted
    try:
        yield
    finally:
        sys.stdout = stdout
        _kept.pop()
        if kept is not None:
            with suppress(OSError, ValueError):  # what a module wrote to it, which may have closed it
                stdout.flush()
            os.dup2(kept.fileno(), STDOUT)
            with suppress(OSError):  # each print is written at once: the one that has failed was told
                kept.close()


def _take_descriptor(stdout: TextIO) -> TextIO | None:
    """Divert the descriptor of stdout, and return a stream for where it leads; None if there is none to divert."""
    try:
        if stdout.fileno() != STDOUT:
            return None
        stdout.flush()
        kept = os.dup(STDOUT)
    except (OSError, ValueError):  # a stream of a test, without a descriptor
        return None
    try:
        os.dup2(STDERR, STDOUT)
    except OSError:  # stderr is closed
        os.close(kept)
        return None
    return open_waiting(WaitingFile(kept, "wb"), stdout)
