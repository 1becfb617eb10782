"""Make room in the write-ahead log before SQLite needs it.

A commit that makes its file longer has the file system write records of its own too, and takes twice as long: 300 µs,
and 160 µs where the bytes are there (ext4; medians of 300 transactions of 2 KB). So zeros are appended after a commit,
and the next ones overwrite them. SQLite begins the log again after 1,000 pages and the jobs of an event loop
(`writer`), and a log of that length grows no more.

Zeros are appended, and written at no place of our choice: whatever other processes write meanwhile, none of it is
overwritten. A reader of the log stops at the first frame without the salt of the log's header
(https://sqlite.org/fileformat2.html#walformat), and so at zeros.
"""

# Names are text here: a path object takes longer than the look at the log after each commit.
# ruff: noqa: PTH116, PTH123

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SMALLEST, LARGEST = 64 * 1024, 256 * 1024
"""Bytes that are appended at a time: as many as the log has, within these."""
ENOUGH = (1_000 + 256) * (4_096 + 24) + 32
"""Bytes of a log that grows no more: 1,000 frames of a page, and those of 32 jobs with eight pages each."""
SPARED = 64 * 1024 * 1024
"""Bytes of a disk that are left to others."""


class LogRoom:
    """The zeros at the end of the log of a store."""

    def __init__(self, path: Path) -> None:
        self._log = f"{path}-wal"
        self._end = 0
        """The length of the log when it was seen last: a longer one has no room."""

    def is_outgrown(self) -> bool:
        """Return whether the log is longer than it was and than `ENOUGH`: its readers let nobody begin it again."""
        with suppress(OSError):
            return os.stat(self._log).st_size > max(self._end, ENOUGH)
        return False

    def keep(self) -> None:
        """Append zeros if the log has grown; nothing happens where that is impossible."""
        with suppress(OSError):
            size = os.stat(self._log).st_size
            if self._end < size < ENOUGH and not self._has_room(size):
                size = self._append(min(max(SMALLEST, size), LARGEST, ENOUGH - size))
            self._end = size

    def _has_room(self, size: int) -> bool:
        """Return whether another process has appended zeros."""
        with open(self._log, "rb") as log:
            log.seek(max(0, size - SMALLEST // 2))
            return not any(log.read())

    def _append(self, count: int) -> int:
        """Append zeros that are on the disk when this returns; return the length of the log."""
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            free = os.fstatvfs(log)
            if free.f_bavail * free.f_frsize > SPARED:
                os.write(log, bytes(count))
                os.fdatasync(log)
            return os.fstat(log).st_size
        finally:
            os.close(log)
