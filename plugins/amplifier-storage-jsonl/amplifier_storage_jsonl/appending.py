"""Appends: one write and one flush each, whatever the length of the transcript.

The files of the sessions that were last appended to stay open. To open them takes as long as everything else that an
append does before the disk has its turn, and closing one makes the file system look for room anew.
"""

# Names are text here: making a path takes longer than most of what is done with it, and an append waits for it.
# ruff: noqa: PTH116

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from .files import open_file, translated, write_all
from .lines import checksum
from .marks import Mark, read_line, to_mark
from .transcript import settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .folder import SessionFolder
    from .tree import Tree

_OPEN = 32
"""Sessions whose files stay open."""


class Appends:
    """Appends to the sessions of a tree, from one thread at a time."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._open: dict[str, _OpenSession] = {}
        """The one that was used last at the end."""
        self._using = threading.Lock()

    def append(self, session_id: str, bodies: Sequence[bytes], at: int) -> int:
        """Add lines after the first `at` messages, on the disk when this returns; return how many there were.

        When there were not `at`, nothing is written. Raises `StoreDamaged`, `StoreUnavailable`, `SessionNotFound`.
        """
        with self._using:
            session = self._locked(session_id)
            with translated(session.folder.path):
                try:
                    count = session.append(bodies, at)
                except BaseException:
                    session.close()
                    raise
                session.unlock()
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

    def _locked(self, session_id: str) -> _OpenSession:
        """Return the session's files, locked, and still at their place."""
        session = self._open.pop(session_id, None) or _OpenSession(self._tree.find(session_id))
        while not session.lock():
            session.close()
            session = _OpenSession(self._tree.find(session_id))
        return session


class _OpenSession:
    """A session's lock and transcript, and what was known of them when they were last used."""

    def __init__(self, folder: SessionFolder) -> None:
        self.folder = folder
        with translated(folder.path):
            try:
                self._lock = open_file(folder.lock, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError as error:
                raise folder.lost() from error
        self._locked_file = _file(os.fstat(self._lock))
        self._transcript = -1
        self._transcript_file = (0, 0)
        self._line = b""
        self._mark: Mark | None = None

    def lock(self) -> bool:
        """Hold the session against other writers; return False when it was deleted or moved since."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            return _file(os.stat(self.folder.lock)) == self._locked_file
        except (FileNotFoundError, NotADirectoryError):
            return False

    def unlock(self) -> None:
        """Let others have it."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files, which unlocks them."""
        self.unlock()  # processes that were forked meanwhile have the files too, and would keep the lock
        for file in (self._lock, self._transcript):
            if file >= 0:
                os.close(file)

    def append(self, bodies: Sequence[bytes], at: int) -> int:
        """Do what `Appends.append` does, with the lock held."""
        try:
            start, found = self.folder.start(), os.stat(self.folder.own)
            if _file(found) != self._transcript_file:
                self._open_transcript()
        except FileNotFoundError as error:
            raise self.folder.lost() from error
        mark = self._marked(found.st_size)
        if start + mark.count == at and bodies:
            self._write(mark, bodies)
        return start + mark.count

    def _open_transcript(self) -> None:
        before, self._transcript = self._transcript, -1
        if before >= 0:
            os.close(before)
        self._transcript = open_file(self.folder.own, os.O_RDWR | os.O_APPEND)
        self._transcript_file = _file(os.fstat(self._transcript))

    def _marked(self, size: int) -> Mark:
        """Return the mark; where it does not say how the transcript ends, one that does."""
        line = read_line(self._lock)
        if line != self._line:
            self._line, self._mark = line, to_mark(line)
        mark = self._mark
        if mark is not None and mark.size == size and mark.stands_in(self._transcript):
            return mark
        return settled(self.folder.own, self._transcript, mark)

    def _write(self, mark: Mark, bodies: Sequence[bytes]) -> None:
        checksums = [checksum(body, followed=True) for body in bodies[:-1]] + [checksum(bodies[-1])]
        data = b"".join([part for pair in zip(bodies, checksums, strict=True) for part in (*pair, b"\n")])
        try:
            write_all(self._transcript, data)
            _to_disk(self._transcript)
        except BaseException:
            os.ftruncate(self._transcript, mark.size)
            raise
        self._mark = Mark(mark.size + len(data), mark.count + len(bodies), checksums[-1], mark.file)
        with suppress(OSError):  # the messages are on the disk; the next append finds them without the mark
            self._line = self._mark.write(self._lock)


def _file(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _to_disk(transcript: int) -> None:
    # macOS has no fdatasync, and its fsync leaves written data in the drive's cache
    sync = getattr(os, "fdatasync", os.fsync)
    sync(transcript)
