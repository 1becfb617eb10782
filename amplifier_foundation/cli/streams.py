"""Write to a pipe that does not block as to any other one: wait for its reader."""

from __future__ import annotations

import io
import sys
from select import select
from typing import Any, TextIO


class WaitingFile(io.FileIO):
    """The file of a stream; it waits for room also where the other side of a pipe has set `O_NONBLOCK`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.fileno(), "wb", closefd=False)
        self._stream = stream  # whose end may close the file

    def write(self, data: Any, /) -> int:
        """Write some bytes at least; return their number. Raises `OSError`."""
        while (written := super().write(data)) is None:  # so it says that there is no room
            select((), (self,), ())
        return written


def wait_for_readers() -> None:
    """Have stdout and stderr wait for slow readers, and leave the mode of a pipe as it is: others have it open, too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.flush()
            by_lines = stream.line_buffering or stream.write_through
            buffer = io.BufferedWriter(WaitingFile(stream))
            waiting = io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=by_lines)
            setattr(sys, name, waiting)
