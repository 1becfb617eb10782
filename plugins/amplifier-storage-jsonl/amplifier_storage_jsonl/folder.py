"""One session's folder: `metadata.json`, the transcript, and the lock that also holds the transcript's mark."""

# Names are text here: making a path takes longer than most of what is done with it, and an append waits for it.
# ruff: noqa: PTH105, PTH108, PTH110, PTH116

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound

from . import transcript
from .files import damaged, locked, make_folder, opened, read_all, replace, sync_folder, translated, write_all
from .lines import dumps, loads, sealed
from .marks import Mark, new_file, read_line, to_mark
from .pages import Pages, Places
from .records import COUNTED, counted, to_counted, to_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from amplifier_core.storage import SessionRecord

    from .transcript import Contents

METADATA, TRANSCRIPT, LOCK = "metadata.json", "transcript.jsonl", ".lock"
_WHOLE = ".transcript.jsonl.whole"


class SessionFolder:
    """The files of one session; what it keeps in memory is where some of its lines begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session_id = path.name
        # text, because a path is made anew for each name below it, which takes longer than to open the file
        self.metadata, self.lock = f"{path}/{METADATA}", f"{path}/{LOCK}"
        self.own, self._whole = f"{path}/{TRANSCRIPT}", f"{path}/{_WHOLE}"
        self._places = Places()

    def exists(self) -> bool:
        """Return whether there is a session: an empty folder is none."""
        return os.path.lexists(self.metadata) or os.path.lexists(self.own)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the session against other writers. Raises `SessionNotFound` when it was deleted meanwhile."""
        with translated(self.path):
            try:
                with locked(self.lock) as lock:
                    if not os.fstat(lock).st_nlink:
                        raise SessionNotFound(self.session_id)
                    self.finish_whole()
                    yield lock
            except FileNotFoundError as error:
                raise self.lost() from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the session against writers while it is read; where nobody ever wrote, there is nothing to hold."""
        with translated(self.path):
            try:
                with locked(self.lock, shared=True) if os.path.exists(self.lock) else nullcontext():
                    yield
            except FileNotFoundError as error:
                raise self.lost() from error

    def document(self) -> dict[str, Any]:
        """Return `metadata.json`. Raises `StoreDamaged`, `SessionNotFound`."""
        try:
            with translated(self.metadata):
                return loads(read_all(self.metadata).rstrip(b"\r\n"))
        except FileNotFoundError as error:
            raise self.lost() from error
        except ValueError as error:
            raise damaged(self.metadata, f"is damaged ({error})") from None

    def save(self, document: Mapping[str, Any], mark: Mark | None = None) -> None:
        """Put a new `metadata.json` in the place of the one before; with the transcript's mark, it counts messages.

        Raises `StoreDamaged` for what is not JSON there, such as `NaN`, which some tools write all the same.
        """
        kept = {name: value for name, value in document.items() if name != COUNTED}
        try:
            data = encoded(kept if mark is None else {**kept, **self._counted(mark)})
        except TypeError as error:
            raise damaged(self.metadata, f"cannot be written again ({error})", "Correct the value there") from None
        replace(self.metadata, data)

    def record(self) -> SessionRecord:
        """Return the session's record."""
        document = self.document()
        own = self.transcript(document)
        with translated(self.path):
            try:
                found = os.stat(own)
                count = counted(document, found)
                if count is None:
                    mark = self.mark()
                    marked = mark is not None and mark.size == found.st_size
                    count = mark.count if mark and marked else transcript.contents(own, mark).count
                return to_record(document, self.session_id, count, found, lambda: os.stat(self.metadata).st_mtime)
            except FileNotFoundError as error:
                raise self.lost() from error

    def mark(self) -> Mark | None:
        """Return the transcript's mark; None when there is none."""
        try:
            with opened(self.lock, os.O_RDONLY) as lock:
                return to_mark(read_line(lock))
        except OSError:
            return None

    def contents(self, document: Mapping[str, Any]) -> Contents:
        """Return what stands in the transcript."""
        with translated(self.path):
            return transcript.contents(self.transcript(document), self.mark())

    @contextmanager
    def opened(self, document: Mapping[str, Any], needed: int | None) -> Iterator[Pages | Contents]:
        """Open the transcript to read messages up to its own `needed`, or to its end."""
        path, mark = self.transcript(document), self.mark()
        with translated(self.path):
            with opened(path, os.O_RDONLY) if mark and os.path.exists(path) else nullcontext() as file:
                if mark and file is not None and _describes(mark, file, needed):
                    yield Pages(path, file, mark, self._places.of(mark))
                    return
            yield transcript.contents(path, mark)

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
        self.finish_whole()
        mark.write(lock)

    def rewrite(self, lock: int, lines: list[bytes]) -> None:
        """Put other messages in the place of the folder's own."""
        os.ftruncate(lock, 0)
        transcript.rewrite(self.own, lines).write(lock)

    def finish_whole(self) -> None:
        """Move a whole history to its place that its writer was killed over, or drop one that never was to be."""
        if not os.path.exists(self._whole):
            return
        if self.document().get("whole"):
            os.replace(self._whole, self.own)
        else:
            os.unlink(self._whole)
        sync_folder(self.path)

    def _counted(self, mark: Mark) -> dict[str, Any]:
        found = os.stat(self.own)
        return to_counted(mark.count, found) if found.st_size == mark.size else {}

    def lost(self) -> Exception:
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
        _fill(new, document)
        new.rename(path)
    except BaseException:
        remove(new)
        raise
    sync_folder(path.parent)


def _fill(new: Path, document: Mapping[str, Any]) -> None:
    with (
        locked(new / LOCK) as lock,
        opened(new / TRANSCRIPT, os.O_WRONLY | os.O_CREAT) as messages,
        opened(new / METADATA, os.O_WRONLY | os.O_CREAT) as metadata,
    ):
        Mark(file=new_file()).write(lock)
        write_all(metadata, encoded({**document, **to_counted(0, os.fstat(messages))}))
        os.fsync(metadata)
        os.fsync(messages)
    sync_folder(new)


def remove(path: Path) -> None:
    """Remove a folder and everything in it."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _describes(mark: Mark, file: int, needed: int | None) -> bool:
    """Return whether the open transcript is as its mark says: to its end, or up to the `needed` message at least."""
    more = os.fstat(file).st_size - mark.size
    return (more == 0 or (more > 0 and needed is not None and needed <= mark.count)) and mark.describes(file)
