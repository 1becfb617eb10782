"""Read and write one session's folder: `metadata.json`, the transcript, and the lock with the transcript's mark."""

# Names are text here: a path object takes longer than most operations on it, and an append would wait for it.
# ruff: noqa: PTH105, PTH108, PTH110, PTH116

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound

from . import transcript
from .files import (
    damage_error,
    hold_lock,
    make_folder,
    open_closing,
    read_all,
    replace,
    sync_folder,
    translate_errors,
    write_all,
)
from .lines import dumps, loads, seal
from .marks import Mark, new_file, read_line, to_mark
from .pages import Pages, Places
from .records import COUNTED, known_count, to_counted, to_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from amplifier_core.storage import SessionRecord

    from .transcript import Contents

METADATA, TRANSCRIPT, LOCK = "metadata.json", "transcript.jsonl", ".lock"
_WHOLE = ".transcript.jsonl.whole"


class SessionFolder:
    """Own the files of one session; keeps only the places of some lines in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session_id = path.name
        # text: a new path object for each name takes longer than opening the file
        self.metadata, self.lock = f"{path}/{METADATA}", f"{path}/{LOCK}"
        self.own, self._whole = f"{path}/{TRANSCRIPT}", f"{path}/{_WHOLE}"
        self._places = Places()

    def exists(self) -> bool:
        """Return whether there is a session: an empty folder is none."""
        return os.path.lexists(self.metadata) or os.path.lexists(self.own)

    @contextmanager
    def hold_lock(self) -> Iterator[int]:
        """Hold the session against other writers. Raises `SessionNotFound` when it was deleted meanwhile."""
        with translate_errors(self.path):
            try:
                with hold_lock(self.lock) as lock:
                    if not os.fstat(lock).st_nlink:
                        raise SessionNotFound(self.session_id)
                    self.finish_whole()
                    yield lock
            except FileNotFoundError as error:
                raise self.missing_error() from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the session against writers during a read; a session without a writer has no lock to hold."""
        with translate_errors(self.path):
            try:
                with hold_lock(self.lock, shared=True) if os.path.exists(self.lock) else nullcontext():
                    yield
            except FileNotFoundError as error:
                raise self.missing_error() from error

    def document(self) -> dict[str, Any]:
        """Return `metadata.json`. Raises `StoreDamaged`, `SessionNotFound`."""
        try:
            with translate_errors(self.metadata):
                return loads(read_all(self.metadata).rstrip(b"\r\n"))
        except FileNotFoundError as error:
            raise self.missing_error() from error
        except ValueError as error:
            raise damage_error(self.metadata, f"is damaged ({error})") from None

    def save(self, document: Mapping[str, Any], mark: Mark | None = None) -> None:
        """Replace `metadata.json`; with the transcript's mark, include the number of messages.

        Raises `StoreDamaged` for a value without a JSON form, such as the `NaN` some tools write.
        """
        kept = {name: value for name, value in document.items() if name != COUNTED}
        try:
            data = encode_document(kept if mark is None else {**kept, **self._count_member(mark)})
        except TypeError as error:
            raise damage_error(self.metadata, f"cannot be written again ({error})", "Correct the value there") from None
        replace(self.metadata, data)

    def record(self) -> SessionRecord:
        """Return the session's record."""
        document = self.document()
        own = self.transcript(document)
        with translate_errors(self.path):
            try:
                found = os.stat(own)
                count = known_count(document, found)
                if count is None:
                    mark = self.mark()
                    marked = mark is not None and mark.size == found.st_size
                    count = mark.count if mark and marked else transcript.contents(own, mark).count
                return to_record(document, self.session_id, count, found, lambda: os.stat(self.metadata).st_mtime)
            except FileNotFoundError as error:
                raise self.missing_error() from error

    def mark(self) -> Mark | None:
        """Return the transcript's mark; None when there is none."""
        try:
            with open_closing(self.lock, os.O_RDONLY) as lock:
                return to_mark(read_line(lock))
        except OSError:
            return None

    def contents(self, document: Mapping[str, Any]) -> Contents:
        """Read the whole transcript."""
        with translate_errors(self.path):
            return transcript.contents(self.transcript(document), self.mark())

    @contextmanager
    def open_transcript(self, document: Mapping[str, Any], needed: int | None) -> Iterator[Pages | Contents]:
        """Open the transcript to read messages up to its own `needed`, or to its end."""
        path, mark = self.transcript(document), self.mark()
        with translate_errors(self.path):
            with open_closing(path, os.O_RDONLY) if mark and os.path.exists(path) else nullcontext() as file:
                if mark and file is not None and mark.describes(file):
                    more = os.fstat(file).st_size - mark.size
                    # a longer transcript has lines of another writer after its mark: the first ones are known
                    if more == 0 or (more > 0 and needed is not None and needed <= mark.count):
                        yield Pages(path, file, mark, self._places.of(mark))
                        return
            yield transcript.contents(path, mark)

    def transcript(self, document: Mapping[str, Any]) -> str:
        """Return the path of the messages."""
        return self._whole if document.get("whole") and os.path.exists(self._whole) else self.own

    def make_whole(self, lock: int, document: Mapping[str, Any], lines: list[bytes]) -> None:
        """Put the whole history in place of the folder's own messages.

        The new `metadata.json` decides: before it the copy is void; after it, the next writer moves the copy into place
        if this one was killed.
        """
        os.ftruncate(lock, 0)  # until the new mark is written, none is better than the old one
        mark = transcript.rewrite(self._whole, lines)
        self.save(document)
        self.finish_whole()
        mark.write(lock)

    def rewrite(self, lock: int, lines: list[bytes]) -> None:
        """Put other messages in the place of the folder's own."""
        os.ftruncate(lock, 0)
        transcript.rewrite(self.own, lines).write(lock)

    def finish_whole(self) -> None:
        """Move a whole history into place after a killed writer, or remove a void one."""
        if not os.path.exists(self._whole):
            return
        if self.document().get("whole"):
            os.replace(self._whole, self.own)
        else:
            os.unlink(self._whole)
        sync_folder(self.path)

    def _count_member(self, mark: Mark) -> dict[str, Any]:
        found = os.stat(self.own)
        return to_counted(mark.count, found) if found.st_size == mark.size else {}

    def missing_error(self) -> Exception:
        """Return the error for a missing file: the session is damaged, or never was."""
        for name in (METADATA, TRANSCRIPT):
            if self.exists() and not (self.path / name).exists():
                return damage_error(self.path / name, "is missing")
        return SessionNotFound(self.session_id)


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Return `metadata.json` with a checksum. Raises `TypeError` for a value without a JSON form."""
    return seal(dumps(document, "record", indent=2)) + b"\n"


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
        hold_lock(new / LOCK) as lock,
        open_closing(new / TRANSCRIPT, os.O_WRONLY | os.O_CREAT) as messages,
        open_closing(new / METADATA, os.O_WRONLY | os.O_CREAT) as metadata,
    ):
        Mark(file=new_file()).write(lock)
        write_all(metadata, encode_document({**document, **to_counted(0, os.fstat(messages))}))
        os.fsync(metadata)
        os.fsync(messages)
    sync_folder(new)


def remove(path: Path) -> None:
    """Remove a folder and everything in it."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
