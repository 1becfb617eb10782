"""A file of lines that several processes append to, and that makes room for a new one before it grows too large."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_TAIL = 64 * 1024
"""Bytes at the end of a file in which the beginning of half a line is looked for."""
_ATTEMPTS = 100
"""How often others may take away the folder, or put another file in place before it is locked."""


class RotatingFile:
    """The file `path`, and beside it the full ones: `path.1` is the newest of `keep`.

    Files are private (0600), and so are the folders made for them (0700). While one process writes or rotates, the
    others wait: the file itself is locked.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep

    def append(self, lines: Sequence[bytes]) -> None:
        """Write `lines`, as many at once as a file holds, each whole or not at all. Raises `OSError`."""
        start = 0
        while start < len(lines):
            with self._opened() as file:
                size = _end_of_lines(file)
                stop = self._fitting(lines, start, size)
                if stop > start:
                    _write(file, b"".join(lines[start:stop]), size)
                else:
                    self._rotate()
                start = stop

    def _fitting(self, lines: Sequence[bytes], start: int, size: int) -> int:
        """Return the end of the lines that still fit; an empty file takes one line, however long."""
        stop = start
        while stop < len(lines) and (size + len(lines[stop]) <= self._max_bytes or not size):
            size += len(lines[stop])
            stop += 1
        return stop

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open and lock the file that has the name; one that was renamed in between is let go."""
        for _ in range(_ATTEMPTS):
            try:
                file = os.open(self.path, _FLAGS, 0o600)
            except FileNotFoundError:
                _make_folder(self.path.parent)
                continue
            try:
                _require_private(file)
                fcntl.flock(file, fcntl.LOCK_EX)
                if self._has_name(file):
                    yield file
                    return
            finally:
                os.close(file)
        raise OSError(errno.EAGAIN, "it is replaced again and again", str(self.path))

    def _has_name(self, file: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file), self.path.stat())
        return False

    def _rotate(self) -> None:
        for number in range(self._keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._full(number).replace(self._full(number + 1))
        if self._keep:
            self.path.replace(self._full(1))
        else:
            self.path.unlink()

    def _full(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _make_folder(folder: Path) -> None:
    for missing in [each for each in (*reversed(folder.parents), folder) if not each.exists()]:
        with suppress(FileExistsError):
            missing.mkdir(0o700)


def _require_private(file: int) -> None:
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if stat.S_IMODE(mode) != 0o600:
        os.fchmod(file, 0o600)


def _end_of_lines(file: int) -> int:
    """Return the size of the file, after half a line that a killed process left was cut away."""
    size = os.fstat(file).st_size
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return size
    tail = os.pread(file, _TAIL, max(0, size - _TAIL))
    whole = tail.rfind(b"\n") + 1
    if not whole and size > len(tail):
        return size + os.write(file, b"\n")  # no line of ours is that long: another program's is only ended
    os.ftruncate(file, size - len(tail) + whole)
    return size - len(tail) + whole


def _write(file: int, data: bytes, size: int) -> None:
    """Write all of `data` after the first `size` bytes: one call, unless the system takes less; else nothing of it."""
    try:
        written = os.write(file, data)
        while written < len(data):
            written += os.write(file, memoryview(data)[written:])
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, size)
        raise
