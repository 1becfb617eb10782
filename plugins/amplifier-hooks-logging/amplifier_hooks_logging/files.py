"""Append lines to a file from several processes, and rotate it by size."""

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
"""Bytes at the end of a file to search for the start of half a line."""
_ATTEMPTS = 100
"""How often other processes may remove the folder, or replace the file before it is locked."""


class RotatingFile:
    """The file `path`, and the full ones beside it: `path.1` is the newest of `keep`.

    Files of the user are private (0600), and so are new folders (0700). A writer locks the file itself, so other
    processes wait while it writes or rotates.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep

    def append(self, lines: Sequence[bytes]) -> None:
        """Write `lines`, each whole or not at all; one call for as many as the file has room for. Raises `OSError`."""
        start = 0
        while start < len(lines):
            with self._open_locked() as file:
                size = _repair_end(file)
                stop = self._count_fitting(lines, start, size)
                if stop > start:
                    _write(file, b"".join(lines[start:stop]), size)
                else:
                    self._rotate()
                start = stop

    def _count_fitting(self, lines: Sequence[bytes], start: int, size: int) -> int:
        """Return the end of the lines with room in the file; an empty file takes one line of any length."""
        stop = start
        while stop < len(lines) and (size + len(lines[stop]) <= self._max_bytes or not size):
            size += len(lines[stop])
            stop += 1
        return stop

    @contextmanager
    def _open_locked(self) -> Iterator[int]:
        """Open and lock the file of this name; try again if it was renamed before the lock."""
        for _ in range(_ATTEMPTS):
            try:
                file = os.open(self.path, _FLAGS, 0o600)
            except FileNotFoundError:
                for folder in reversed(self.path.parents):
                    if not folder.exists():
                        with suppress(FileExistsError):
                            folder.mkdir(0o700)
                continue
            try:
                found = os.fstat(file)
                if not stat.S_ISREG(found.st_mode):
                    raise OSError(errno.EINVAL, "it is not a regular file")
                if found.st_mode & 0o077 and found.st_uid == os.geteuid():
                    with suppress(OSError):  # some file systems change no modes
                        os.fchmod(file, 0o600)
                fcntl.flock(file, fcntl.LOCK_EX)
                if self._has_name(file):
                    yield file
                    return
            finally:
                os.close(file)
        raise OSError(errno.EAGAIN, "other programs replace it again and again", str(self.path))

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


def _repair_end(file: int) -> int:
    """Cut off half a line of a killed process, and return the size of the file."""
    size = os.fstat(file).st_size
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return size
    tail = os.pread(file, _TAIL, max(0, size - _TAIL))
    whole = tail.rfind(b"\n") + 1
    if not whole and size > len(tail):
        return size + os.write(
            file, b"\n"
        )  # our lines are shorter: this one is another program's, and only gets its end
    os.ftruncate(file, size - len(tail) + whole)
    return size - len(tail) + whole


def _write(file: int, data: bytes, size: int) -> None:
    """Write all of `data` after the first `size` bytes, or nothing of it."""
    try:
        written = os.write(file, data)
        while written < len(data):
            written += os.write(file, memoryview(data)[written:])
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, size)
        raise
