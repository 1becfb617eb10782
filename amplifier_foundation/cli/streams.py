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

_find_pipe: Callable[[int], UnreadPipe | None] | None = None
"""Set by a service: both streams are its log."""

goes_on = False
"""Whether the command does its work to the end although its output cannot be written: else its error ends it."""
needs_stderr = False
"""Whether text on stderr counts as output: so while a person is asked, and in commands of other packages."""
lost: OSError | None = None
"""The error of the last write of output whose text is missing although the stream has a reader."""
untold: OSError | None = None
"""The error of the last write to stderr whose text is missing and was no output."""
unread: ConnectionError | None = None
"""The error of the last write to a stream whose reader is gone."""


class WaitingFile(io.FileIO):
    """A file that waits for room also where the other side of a pipe has set `O_NONBLOCK`.

    After `leave_out_unread`, a write to a pipe does not wait.
    """

    def write(self, data: Any, /) -> int:
        """Write some bytes at least; return their number, with those in wait or left out.

        Raises `ConnectionError`, and for output `OSError` unless a command `goes_on`: all else leaves the bytes out.
        """
        try:
            return self.write_some(data)
        except OSError as error:
            if error is unread or (error is lost and not goes_on):
                raise
            return len(data)

    def write_some(self, data: Any, /) -> int:
        """Write as `write`, and raise each `OSError`."""
        global lost, unread, untold
        try:
            if _find_pipe is not None and (pipe := _find_pipe(self.fileno())) is not None:
                pipe.write(self.fileno(), bytes(data))
                return len(data)
            while (written := super().write(data)) is None:  # so it says that there is no room
                select.select((), (self,), ())
        except ConnectionError as error:
            unread = error
            raise
        except OSError as error:
            if self.fileno() == 2 and not needs_stderr:
                untold = error
            elif _find_pipe is None:
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
    """From now on, have stdout and stderr be a log: it keeps what the reader of a pipe has no room for.

    What finds no room there or elsewhere is left out, and is no loss of output.
    """
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
