"""One session's folder: `metadata.json`, the transcript, and the lock that also holds the transcript's mark."""

# Names are text here: making a path takes longer than most of what is done with it, and an append waits for it.
# ruff: noqa: PTH105, PTH108, PTH110, PTH116

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound

from . import transcript
from .files import damaged, locked, make_folder, opened, read_all, replace, sync_folder, translated, write_new
from .lines import dumps, loads, sealed
from .records import start_of, to_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from amplifier_core.storage import SessionRecord

    from .transcript import Contents, Mark

METADATA, TRANSCRIPT, LOCK = "metadata.json", "transcript.jsonl", ".lock"
_WHOLE = ".transcript.jsonl.whole"


class SessionFolder:
    """The files of one session; what it keeps in memory is where its own messages begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session_id = path.name
        # text, because a path is made anew for each name below it, which takes longer than to open the file
        self._metadata, self._lock = f"{path}/{METADATA}", f"{path}/{LOCK}"
        self.own, self._whole = f"{path}/{TRANSCRIPT}", f"{path}/{_WHOLE}"
        self._start: tuple[tuple[int, int, int], int] | None = None

    def exists(self) -> bool:
        """Return whether there is a session: an empty folder is none."""
        return os.path.lexists(self._metadata) or os.path.lexists(self.own)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the session against other writers. Raises `SessionNotFound` when it was deleted meanwhile."""
        with translated(self.path):
            try:
                with locked(self._lock) as lock:
                    if not os.fstat(lock).st_nlink:
                        raise SessionNotFound(self.session_id)
                    self._finish_whole()
                    yield lock
            except FileNotFoundError as error:
                raise self._lost() from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the session against writers while it is read; where nobody ever wrote, there is nothing to hold."""
        with translated(self.path):
            try:
                with locked(self._lock, shared=True) if os.path.exists(self._lock) else nullcontext():
                    yield
            except FileNotFoundError as error:
                raise self._lost() from error

    def document(self) -> dict[str, Any]:
        """Return `metadata.json`. Raises `StoreDamaged`, `SessionNotFound`."""
        try:
            with translated(self._metadata):
                return loads(read_all(self._metadata).rstrip(b"\r\n"))
        except FileNotFoundError as error:
            raise self._lost() from error
        except ValueError as error:
            raise damaged(self._metadata, f"is damaged ({error})") from None

    def save(self, document: Mapping[str, Any]) -> None:
        """Put a new `metadata.json` in the place of the one before."""
        replace(self._metadata, encoded(document))

    def record(self) -> SessionRecord:
        """Return the session's record."""
        document = self.document()
        own = self.transcript(document)
        with translated(self.path):
            try:
                written, appended = os.stat(self._metadata), os.stat(own)
            except FileNotFoundError as error:
                raise self._lost() from error
            mark = self.mark()
            if mark is not None and mark.size == appended.st_size:
                count = mark.count
            else:
                count = transcript.contents(own, mark).count
        return to_record(
            document,
            self.session_id,
            count=start_of(document) + count,
            written=written.st_mtime,
            appended=appended.st_mtime if appended.st_size else None,
        )

    def start(self) -> int:
        """Return the position of the folder's first message, reading `metadata.json` only when it has changed."""
        found = os.stat(self._metadata)
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._start is None or self._start[0] != version:
            self._start = version, start_of(self.document())
        return self._start[1]

    def mark(self) -> Mark | None:
        """Return the transcript's mark; None when there is none."""
        try:
            with opened(self._lock, os.O_RDONLY) as lock:
                return transcript.read_mark(lock)
        except OSError:
            return None

    def contents(self, document: Mapping[str, Any]) -> Contents:
        """Return what stands in the transcript."""
        with translated(self.path):
            return transcript.contents(self.transcript(document), self.mark())

    def transcript(self, document: Mapping[str, Any]) -> str:
        """Return the file that holds the messages."""
        return self._whole if document.get("whole") and os.path.exists(self._whole) else self.own

    def make_whole(self, lock: int, document: Mapping[str, Any], lines: list[bytes]) -> None:
        """Put the whole history in the place of the folder's own messages.

        The new `metadata.json` decides: before it, the copy is void, and after it, the next writer moves it to its
        place if this one was killed.
        """
        os.ftruncate(lock, 0)  # until the new mark stands, none is better than that of the lines before
        mark = transcript.rewrite(self._whole, lines)
        self.save(document)
        self._finish_whole()
        mark.write(lock)

    def rewrite(self, lock: int, lines: list[bytes]) -> None:
        """Put other messages in the place of the folder's own."""
        os.ftruncate(lock, 0)
        transcript.rewrite(self.own, lines).write(lock)

    def _finish_whole(self) -> None:
        if not os.path.exists(self._whole):
            return
        if self.document().get("whole"):
            os.replace(self._whole, self.own)
        else:
            os.unlink(self._whole)
        sync_folder(self.path)

    def _lost(self) -> Exception:
        """Return the error for a file that is not there: of a session that is damaged, or that never was."""
        for name in (METADATA, TRANSCRIPT):
            if self.exists() and not (self.path / name).exists():
                return damaged(self.path / name, "is missing")
        return SessionNotFound(self.session_id)


def encoded(document: Mapping[str, Any]) -> bytes:
    """Return `metadata.json`, with a checksum. Raises `TypeError` for what is not JSON."""
    return sealed(dumps(document, "record", indent=2)) + b"\n"


def make(path: Path, document: Mapping[str, Any]) -> None:
    """Make a session's folder: with all its files, or not at all. Raises `OSError` when there is one."""
    make_folder(path.parent)
    new = path.with_name(f".{path.name[:64]}.{os.urandom(4).hex()}.new")
    new.mkdir(0o700)
    try:
        new.chmod(0o700)
        write_new(new / METADATA, encoded(document))
        with locked(new / LOCK) as lock:
            write_new(new / TRANSCRIPT, b"")
            transcript.Mark().write(lock)
        new.rename(path)
    except BaseException:
        remove(new)
        raise
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a folder and everything in it."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
