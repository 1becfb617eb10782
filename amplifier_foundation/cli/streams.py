"""Write to a pipe that does not block as to any other one: wait for its reader."""

from __future__ import annotations

import io
import sys
from select import select
from typing import Any, TextIO

_replaced: list[TextIO] = []
"""The streams in whose place others are: their end would close the files."""


class WaitingFile(io.FileIO):
    """A file that waits for room also where the other side of a pipe has set `O_NONBLOCK`."""

    def write(self, data: Any, /) -> int:
        """Write some bytes at least; return their number. Raises `OSError`."""
        while (written := super().write(data)) is None:  # so it says that there is no room
            select((), (self,), ())
        return written


class WholeFile(WaitingFile):
    """A file that writes all, for a stream without a buffer."""

    write_some = WaitingFile.write

    def write(self, data: Any, /) -> int:
        """Write all; return the number of bytes. Raises `OSError`."""
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += self.write_some(view[written:])
        return written


def open_waiting(descriptor: int, like: TextIO, *, closefd: bool = True) -> TextIO:
    """Return a stream that writes text to a file, with the buffers of the stream `like`."""
    if isinstance(like, io.TextIOWrapper) and like.write_through:  # as with PYTHONUNBUFFERED
        whole: Any = WholeFile(descriptor, "wb", closefd=closefd)
        return io.TextIOWrapper(whole, like.encoding, like.errors, write_through=True)
    buffer = io.BufferedWriter(WaitingFile(descriptor, "wb", closefd=closefd))
    return io.TextIOWrapper(buffer, like.encoding, like.errors, line_buffering=bool(like.line_buffering))


def wait_for_readers() -> None:
    """Have stdout and stderr wait for slow readers, and leave the mode of a pipe as it is: others have it open, too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.flush()
            _replaced.append(stream)
            setattr(sys, name, open_waiting(stream.fileno(), stream, closefd=False))
