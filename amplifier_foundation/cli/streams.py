"""Write to a pipe that does not block as to any other one: wait for its reader."""

from __future__ import annotations

import io
import sys
from select import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class WaitingFile(io.FileIO):
    """A file that waits for room; the other side of a pipe may have made it non-blocking (`O_NONBLOCK`)."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some bytes at least; return their number. Raises `OSError`."""
        while (written := super().write(data)) is None:  # so it says that there is no room
            select((), (self,), ())
        return written


def wait_for_readers() -> None:
    """Have stdout and stderr wait for slow readers; of an open pipe, others have and change the mode."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.flush()
            buffer = io.BufferedWriter(WaitingFile(stream.fileno(), "wb", closefd=False))
            by_lines = stream.line_buffering or stream.write_through
            waiting = io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=by_lines)
            setattr(sys, name, waiting)
