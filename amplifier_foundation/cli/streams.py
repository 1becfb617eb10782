"""Write to a pipe that does not block as to any other one: wait for its reader."""

from __future__ import annotations

import io
import sys
from select import select
from typing import Any, TextIO


class WaitingFile(io.FileIO):
    """A file that waits for room also where the other side of a pipe has set `O_NONBLOCK`."""

    stream: TextIO | None = None
    """The stream in whose place it is: its end may close the file."""

    def write_some(self, data: Any) -> int:
        """Write some bytes at least; return their number. Raises `OSError`."""
        while (written := super().write(data)) is None:  # so it says that there is no room
            select((), (self,), ())
        return written

    def write(self, data: Any, /) -> int:
        """Write all; return the number of bytes. Raises `OSError`."""
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += self.write_some(view[written:])
        return written


def open_waiting(file: WaitingFile, like: TextIO) -> TextIO:
    """Return a stream that writes text to the file, with the buffers of the stream `like`."""
    if isinstance(like, io.TextIOWrapper) and like.write_through:  # as with PYTHONUNBUFFERED
        whole: Any = file
        return io.TextIOWrapper(whole, like.encoding, like.errors, write_through=True)
    return io.TextIOWrapper(
        io.BufferedWriter(file), like.encoding, like.errors, line_buffering=bool(like.line_buffering)
    )


def wait_for_readers() -> None:
    """Have stdout and stderr wait for slow readers, and leave the mode of a pipe as it is: others have it open, too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.flush()
            file = WaitingFile(stream.fileno(), "wb", closefd=False)
            file.stream = stream
            setattr(sys, name, open_waiting(file, stream))
