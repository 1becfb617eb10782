"""Keep what is written to a pipe until its reader has room, and leave out lines of which there are too many."""

from __future__ import annotations

import io
import os
import select
import stat
from threading import Condition, Thread

from .streams import has_room

KEPT = 4 << 20
"""Bytes in wait for a reader; beyond, lines are left out until it has read half of them."""
LOOK = 0.1
"""Seconds between two looks whether nothing waits any more."""
LAST_WAIT = 2.0
"""Seconds to wait for a reader at the end, and again for it to read how many lines are left out then."""


class UnreadPipe:
    """Writes to a pipe at once what has room, and the rest from a thread: no write waits for the reader.

    Whole lines are left out, and their number stands in their place.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        """Held for each write and change."""
        self._waiting = bytearray()
        self._is_followed = False
        """Whether a thread writes the rest: nothing goes past it."""
        self._left_out = 0
        """Lines left out that nothing in `_waiting` tells of; the line before them is whole."""
        self._is_in_line = False
        self._leaves_line = False
        """Whether the last line, which may go on, is left out."""
        self._failure: OSError | None = None

    def write(self, descriptor: int, data: bytes) -> None:
        """Write data now or later. Raises the `OSError` of this write, or of one from the thread."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            for line in io.BytesIO(data):
                if not self._is_in_line:
                    self._leaves_line = self._left_out > 0 or len(self._waiting) >= KEPT
                    self._left_out += self._leaves_line
                if not self._leaves_line:
                    self._waiting += line
                self._is_in_line = not line.endswith(b"\n")
            if not self._is_followed:
                while self._waiting and has_room(descriptor) and self._write_some(descriptor):
                    pass
                if self._left_out and len(self._waiting) < KEPT // 2:
                    self._tell_left_out()
                if self._waiting:
                    self._start_following(descriptor)

    def wait_at_end(self) -> None:
        """Wait some seconds for the reader; leave out what it has not read then, and wait again."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._waiting, LAST_WAIT):
                return
            whole = 1 + self._waiting.find(b"\n")  # a part of this line is written, perhaps
            rest = self._waiting[whole:] if whole else b""
            if rest:
                self._left_out += max(1, rest.count(b"\n"))
                del self._waiting[whole:]
                self._tell_left_out()
            self._changed.wait_for(lambda: not self._waiting, LAST_WAIT)

    def _tell_left_out(self) -> None:
        self._waiting += f"amplifier: lines left out here, as nobody read them: {self._left_out}\n".encode()
        self._left_out = 0

    def _write_some(self, descriptor: int) -> int:
        """Write what finds room at once, where there is room; return the number of bytes."""
        try:
            written = os.write(descriptor, bytes(self._waiting[: select.PIPE_BUF]))
        except BlockingIOError:  # another process has taken it
            return 0
        del self._waiting[:written]
        return written

    def _start_following(self, descriptor: int) -> None:
        """Have a thread write the rest; if none can be started, the next write tries again."""
        try:
            own = os.dup(descriptor)  # the stream may be closed meanwhile
        except OSError:
            return
        try:
            Thread(target=self._follow, args=(own,), name="unread", daemon=True).start()
            self._is_followed = True
        except RuntimeError:
            os.close(own)

    def _follow(self, descriptor: int) -> None:
        is_done = False
        while not is_done:
            is_free = has_room(descriptor, LOOK)
            with self._changed:
                try:
                    if is_free:
                        self._write_some(descriptor)
                except OSError as error:
                    self._failure, self._left_out = error, 0
                    self._waiting.clear()
                if self._left_out and len(self._waiting) < KEPT // 2:
                    self._tell_left_out()
                is_done = not self._waiting
                if is_done:
                    self._is_followed = False
                    self._changed.notify_all()
        os.close(descriptor)


_pipes: dict[tuple[int, int], UnreadPipe] = {}
"""By device and inode: stdout and stderr may be one pipe."""


def find_pipe(descriptor: int) -> UnreadPipe | None:
    """Return the pipe or socket of an open file; None: it is neither."""
    found = os.fstat(descriptor)
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)):
        return None
    place = found.st_dev, found.st_ino
    if place not in _pipes:
        _pipes[place] = UnreadPipe()
    return _pipes[place]


def wait_at_end() -> None:
    """Wait some seconds for the readers of all pipes for which something waits."""
    for each in _pipes.values():
        each.wait_at_end()
