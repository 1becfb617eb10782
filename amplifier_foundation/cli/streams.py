"""Write to a pipe that does not block as to any other one: wait for its reader, or keep what it has not read yet."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from .unread import UnreadPipe

_replaced: list[TextIO] = []
"""The streams in whose place others are: their end would close the files."""

_find_pipe: Callable[[int], UnreadPipe | None] = lambda _: None  # noqa: E731 - `leave_out_unread` sets another one

goes_on = False
"""Whether the command does its work to the end although its output cannot be written: else its error ends it."""
lost: OSError | None = None
"""The error of the last write whose text is missing although the stream has a reader."""
unread: ConnectionError | None = None
"""The error of the last write to a stream whose reader is gone."""


class WaitingFile(io.FileIO):
    """A file that waits for room also where the other side of a pipe has set `O_NONBLOCK`.

    After `leave_out_unread`, a write to a pipe does not wait.
    """

    def write(self, data: Any, /) -> int:
        """Write some bytes at least; return their number, with those in wait or left out.

        Raises `OSError`; while a command `goes_on`, only `ConnectionError`: all else leaves the bytes out.
        """
        try:
            return self.write_some(data)
        except ConnectionError:
            raise
        except OSError:
            if not goes_on:
                raise
            return len(data)

    def write_some(self, data: Any, /) -> int:
        """Write as `write`, and raise each `OSError`."""
        global lost, unread
        try:
            if (pipe := _find_pipe(self.fileno())) is not None:
                pipe.write(self.fileno(), bytes(data))
                return len(data)
            while (written := super().write(data)) is None:  # so it says that there is no room
                select.select((), (self,), ())
        except ConnectionError as error:
            unread = error
            raise
        except OSError as error:
            lost = error
            raise
        return written


class WholeFile(WaitingFile):
    """A file that writes all, for a stream without a buffer."""

    def write(self, data: Any, /) -> int:
        """Write all; return the number of bytes. Raises as for some."""
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += super().write(view[written:])
        return written


def open_waiting(descriptor: int, like: TextIO, *, closefd: bool = True) -> TextIO:
    """Return a stream that writes text to a file, with the buffers of the stream `like`."""
    if isinstance(like, io.TextIOWrapper) and like.write_through:  # as with PYTHONUNBUFFERED
        whole: Any = WholeFile(descriptor, "wb", closefd=closefd)
        return io.TextIOWrapper(whole, like.encoding, like.errors, write_through=True)
    buffer = io.BufferedWriter(WaitingFile(descriptor, "wb", closefd=closefd))
    return io.TextIOWrapper(buffer, like.encoding, like.errors, line_buffering=bool(like.line_buffering))


def leave_out_unread() -> None:
    """From now on, have stdout and stderr keep what the reader of a pipe has no room for, and leave out the rest."""
    global _find_pipe
    from .unread import find_pipe

    _find_pipe = find_pipe


def has_room(descriptor: int, seconds: float = 0.0) -> bool:
    """Return whether a write does not wait for a reader, within some seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(1000 * seconds))


def say_now(line: str) -> None:
    """Write a line to stderr if there is room, from wherever the program is."""
    if has_room(2):
        os.write(2, f"{line}\n".encode())


def wait_for_readers() -> None:
    """Have stdout and stderr wait for slow readers, and leave the mode of a pipe as it is: others have it open, too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.flush()
            _replaced.append(stream)
            setattr(sys, name, open_waiting(stream.fileno(), stream, closefd=False))
