"""Write to a pipe that does not block as to any other one: wait for its reader, or leave out what nobody reads."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any, TextIO

_replaced: list[TextIO] = []
"""The streams in whose place others are: their end would close the files."""


PATIENCE = 0.2
"""Seconds to wait for a reader that has kept up until now, before lines are left out."""
_may_leave_out = False


class WaitingFile(io.FileIO):
    """A file that waits for room also where the other side of a pipe has set `O_NONBLOCK`.

    After `leave_out_unread`, it leaves out what finds no room in a pipe, and counts the lines for the reader.
    """

    _left_out = 0
    _is_cut = False
    """Whether the last line was written in part."""

    def write(self, data: Any, /) -> int:
        """Write some bytes at least; return their number, with those left out. Raises `OSError`."""
        if _may_leave_out and not self.isatty():
            return self._write_or_leave_out(bytes(data))
        return self._write_waiting(data)

    def _write_waiting(self, data: Any) -> int:
        while (written := super().write(data)) is None:  # so it says that there is no room
            select.select((), (self,), ())
        return written

    def _write_or_leave_out(self, data: bytes) -> int:
        if not has_room(self.fileno(), 0 if self._left_out else PATIENCE):
            self._left_out += max(1, data.count(b"\n"))
            return len(data)
        note = ""
        if self._left_out:
            end = "\n" if self._is_cut else ""
            note, self._left_out = f"{end}amplifier: lines left out here, as nobody read them: {self._left_out}\n", 0
        text = (note.encode() + data)[: select.PIPE_BUF]  # a pipe with room takes so much at once
        written = self._write_waiting(text)
        self._is_cut = not text[:written].endswith(b"\n")
        return max(0, written - len(note))


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


def leave_out_unread() -> None:
    """From now on, have stdout and stderr leave out lines of which the reader of a pipe has no more room."""
    global _may_leave_out
    _may_leave_out = True


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
