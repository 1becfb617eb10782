"""Keep stdout for the output of a command: prints of modules, and of programs that they start, go to stderr."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from amplifier_core.plugin_guard import STDERR, STDOUT

from .streams import WholeFile, open_waiting

if TYPE_CHECKING:
    from collections.abc import Iterator


class Diverted(io.TextIOBase):
    """What modules get as stdout: it writes to stderr as that is at the moment, above a live view.

    No print of theirs fails, and nothing that they do to it reaches stderr itself.
    """

    def write(self, text: str) -> int:
        """Write a text where stderr takes it."""
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what waits."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()

    def close(self) -> None:
        """Close nothing: stderr belongs to the program."""

    def fileno(self) -> int:
        """Return the descriptor of stderr."""
        return sys.stderr.fileno()

    def isatty(self) -> bool:
        """Return whether stderr is a terminal."""
        return sys.stderr.isatty()

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute there
        """The encoding of stderr."""
        return sys.stderr.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # an attribute there
        """What stderr does with characters that it cannot write."""
        return sys.stderr.errors

    def reconfigure(self, **options: Any) -> None:
        """Change nothing."""

    def detach(self) -> Any:
        """Return the buffer."""
        return self.buffer

    @cached_property
    def buffer(self) -> WholeFile:
        """A file of its own, which writes at once."""
        return WholeFile(STDERR, "wb", closefd=False)


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
    return open_waiting(kept, stdout)
