"""Append messages with one write and one flush, whatever the length of the transcript.

The files of the last used sessions stay open: opening takes as long as the rest of an append before the disk works, and
after closing a file the file system looks for room anew. Of more sessions the facts are remembered: to read them anew
takes 30 µs, to see that they still hold 4 µs.

Invariants: the lock is held from the look at the mark to the end of the write; lines are on the disk before the mark
counts them; a failed write is cut off again; a remembered fact counts only for the version of `metadata.json`, and the
text of the mark, that it was read from.
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

from .files import open_file, unavailable, write_all
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
_KNOWN = 1_024
"""Sessions whose facts are remembered without their files; a kilobyte each."""


class Appends:
    """Append to the sessions of a tree, from one thread at a time."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._open: dict[str, _Session] = {}
        """The last used one at the end."""
        self._closed: dict[str, _Session] = {}
        """Those that were open before; the last closed one at the end."""
        self._using = threading.Lock()

    def append(self, session_id: str, bodies: Sequence[bytes], at: int) -> int:
        """Add lines after the first `at` messages, durably; return the count found before.

        With another count than `at`, nothing is written. Raises `StoreDamaged`, `StoreUnavailable`, `SessionNotFound`.
        """
        with self._using:
            session = self._open.pop(session_id, None) or self._closed.pop(session_id, None)
            session = session or _Session(self._tree.find(session_id))
            while (count := session.append(bodies, at)) is None:
                session = _Session(self._tree.find(session_id))
            self._keep_open(session_id, session)
            return count

    def append_at_once(self, session_id: str, bodies: Sequence[bytes], at: int) -> int | None:
        """Do as `append` does for a known session; None for another, or if that takes time."""
        with self._using:
            session = self._open.pop(session_id, None) or self._closed.pop(session_id, None)
            count = session.append(bodies, at, waits=False) if session else None
            if session and count is not None:
                self._keep_open(session_id, session)
            return count

    def close(self) -> None:
        """Close the files."""
        with self._using:
            for session in self._open.values():
                session.close()
            self._open.clear()

    def _keep_open(self, session_id: str, session: _Session) -> None:
        """Take the session used last; close the files of the oldest of too many."""
        self._open[session_id] = session
        if len(self._open) > _OPEN:
            oldest_id, oldest = next(iter(self._open.items()))
            self._open.pop(oldest_id).close()
            self._closed[oldest_id] = oldest
            if len(self._closed) > _KNOWN:
                self._closed.pop(next(iter(self._closed)))


class _Session:
    """Hold a session's lock and transcript, open from its first append until `close`, and the facts of its last use."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        self._lock = self._transcript = -1
        self._inode = (0, 0)
        self._version: tuple[int, int, int] | None = None
        self._first = 0
        self._line = b""
        self._mark: Mark | None = None

    def append(self, bodies: Sequence[bytes], at: int, *, waits: bool = True) -> int | None:
        """Do as `Appends.append` does; return None if other files have replaced these.

        Who does not wait gets None too where the lock is held, or the whole transcript has to be read. Then, and after
        an error, the files are closed.
        """
        count = None
        try:
            if self._hold_lock(waits) and self._is_in_place() and (mark := self._current_mark(waits)):
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
        """Close the files; idempotent."""
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a process forked meanwhile holds the file too
        for file in (self._lock, self._transcript):
            if file >= 0:
                os.close(file)
        self._lock = self._transcript = -1
        self._inode = (0, 0)

    def _hold_lock(self, waits: bool) -> bool:
        """Return whether the lock is held: a folder that was there before may be gone, or another process hold it."""
        if self._lock < 0:
            try:
                self._lock = open_file(self._folder.lock, os.O_RDWR | os.O_CREAT)
            except (FileNotFoundError, NotADirectoryError):
                if self._version is None:
                    raise
                return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

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

    def _current_mark(self, waits: bool) -> Mark | None:
        """Return a mark describing the end of the transcript; if the stored mark does not, wait for one to be made."""
        found = os.stat(self._folder.own)
        if (found.st_dev, found.st_ino) != self._inode:
            self._open_transcript()
        line = read_line(self._lock)
        if line != self._line:
            self._line, self._mark = line, to_mark(line)
        mark = self._mark
        if mark is not None and mark.size == found.st_size and mark.describes(self._transcript):
            return mark
        return settle(self._folder.own, self._transcript, mark) if waits else None

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
