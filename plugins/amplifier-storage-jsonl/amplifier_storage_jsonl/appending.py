"""Append messages with one write and one flush, whatever the length of the transcript.

The files of the last used sessions stay open: opening takes as long as the rest of an append before the disk works, and
after closing a file the file system looks for room anew.

Invariants: the lock is held from the look at the mark to the end of the write; lines are on the disk before the mark
counts them; a failed write is cut off again.
"""

# Names are text here: a path object takes longer than most operations on it, and an append would wait for it.
# ruff: noqa: PTH116

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreError

from .files import open_file, translate_errors, unavailable, write_all
from .lines import checksum
from .marks import Mark, read_line, to_mark
from .records import start_of
from .transcript import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .folder import SessionFolder
    from .tree import Tree

_OPEN = 32
"""Sessions whose files stay open."""


class Appends:
    """Append to the sessions of a tree, from one thread at a time."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._open: dict[str, _OpenSession] = {}
        """The last used one at the end."""
        self._using = threading.Lock()

    def append(self, session_id: str, bodies: Sequence[bytes], at: int) -> int:
        """Add lines after the first `at` messages, durably; return the count found before.

        With another count than `at`, nothing is written. Raises `StoreDamaged`, `StoreUnavailable`, `SessionNotFound`.
        """
        with self._using:
            session = self._open.pop(session_id, None) or _open_session(self._tree.find(session_id))
            while (count := session.append(bodies, at)) is None:
                session = _open_session(self._tree.find(session_id))
            self._open[session_id] = session
            if len(self._open) > _OPEN:
                self._open.pop(next(iter(self._open))).close()
            return count

    def close(self) -> None:
        """Close the files."""
        with self._using:
            for session in self._open.values():
                session.close()
            self._open.clear()


class _OpenSession:
    """Hold a session's open lock and transcript, and the facts of their last use."""

    def __init__(self, folder: SessionFolder, lock: int) -> None:
        self._folder = folder
        self._lock = lock
        self._transcript = -1
        self._inode = (0, 0)
        self._version: tuple[int, int, int] | None = None
        self._first = 0
        self._line = b""
        self._mark: Mark | None = None

    def append(self, bodies: Sequence[bytes], at: int) -> int | None:
        """Do as `Appends.append` does; return None if other files have replaced these.

        Then, and after an error, the files are closed.
        """
        count = None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self._is_in_place():
                mark = self._current_mark()
                there = self._first + mark.count
                if there == at and bodies:
                    self._write(mark, bodies)
                fcntl.flock(self._lock, fcntl.LOCK_UN)
                count = there
        except StoreError:
            raise
        except FileNotFoundError as error:
            raise self._folder.missing_error() from error
        except OSError as error:
            raise unavailable(self._folder.path, error) from error
        finally:
            if count is None:
                self.close()
        return count

    def close(self) -> None:
        """Close the files."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # a process forked meanwhile holds the file too
        for file in (self._lock, self._transcript):
            if file >= 0:
                os.close(file)

    def _is_in_place(self) -> bool:
        """Return whether the session's folder is still the same; reread a changed `metadata.json`."""
        try:
            found = os.stat(self._folder.metadata)
        except (FileNotFoundError, NotADirectoryError):
            if self._version is None:
                raise
            return False
        version = found.st_ino, found.st_mtime_ns, found.st_size
        if version != self._version:
            if not os.path.samestat(os.fstat(self._lock), os.stat(self._folder.lock)):
                return False
            self._folder.finish_whole()
            self._first, self._version = start_of(self._folder.document()), version
        return True

    def _current_mark(self) -> Mark:
        """Return a mark describing the end of the transcript; make one if the stored mark does not."""
        found = os.stat(self._folder.own)
        if (found.st_dev, found.st_ino) != self._inode:
            self._open_transcript()
        line = read_line(self._lock)
        if line != self._line:
            self._line, self._mark = line, to_mark(line)
        mark = self._mark
        if mark is not None and mark.size == found.st_size and mark.describes(self._transcript):
            return mark
        return settle(self._folder.own, self._transcript, mark)

    def _open_transcript(self) -> None:
        before, self._transcript = self._transcript, -1
        if before >= 0:
            os.close(before)
        self._transcript = open_file(self._folder.own, os.O_RDWR | os.O_APPEND)
        found = os.fstat(self._transcript)
        self._inode = found.st_dev, found.st_ino

    def _write(self, mark: Mark, bodies: Sequence[bytes]) -> None:
        checksums = [checksum(body, followed=True) for body in bodies[:-1]] + [checksum(bodies[-1])]
        data = b"".join([part for pair in zip(bodies, checksums, strict=True) for part in (*pair, b"\n")])
        self._mark = Mark(mark.size + len(data), mark.count + len(bodies), checksums[-1], mark.file)
        self._line = self._mark.line()
        try:
            write_all(self._transcript, data)
            # macOS has no fdatasync, and its fsync leaves written data in the drive's cache
            getattr(os, "fdatasync", os.fsync)(self._transcript)
        except BaseException:
            os.ftruncate(self._transcript, mark.size)
            raise
        with suppress(OSError):  # the messages are on the disk; the next append finds them without the mark
            os.pwrite(self._lock, self._line, 0)


def _open_session(folder: SessionFolder) -> _OpenSession:
    with translate_errors(folder.path):
        try:
            return _OpenSession(folder, open_file(folder.lock, os.O_RDWR | os.O_CREAT))
        except FileNotFoundError as error:
            raise folder.missing_error() from error
