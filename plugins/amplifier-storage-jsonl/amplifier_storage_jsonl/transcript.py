"""`transcript.jsonl`: a message a line, written once. Beside it the mark, which says how far it was acknowledged.

The mark is written after the line is on the disk and is not flushed itself: it is never ahead of what is durable. So a
transcript that ends before its mark has lost messages, and one that ends after it with half a line was cut while a
message was written that nobody was told of. A transcript whose lines have no checksums was written by another tool;
its mark means nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .files import damaged, opened, read_all, replace, sync_folder, write_all, write_new
from .lines import BLANKS, checksum, is_good, is_sealed, loads, sealed, split

if TYPE_CHECKING:
    from collections.abc import Sequence

REPAIR = "See what can be saved: amplifier session repair"
_MARK = b'{"size":%15d,"count":%12d,"last":"%s"}'


@dataclass(frozen=True, slots=True)
class Mark:
    """The length of a transcript in bytes and in messages, and the checksum of its last line."""

    size: int = 0
    count: int = 0
    last: bytes = b""

    def write(self, descriptor: int) -> None:
        """Write over the mark before, which is as long as this one."""
        os.pwrite(descriptor, sealed(_MARK % (self.size, self.count, _digits(self.last))), 0)

    def describes(self, transcript: int) -> bool:
        """Return whether the open transcript ends where this mark does, in the same line."""
        if os.fstat(transcript).st_size != self.size:
            return False
        return os.pread(transcript, BLANKS + 1, max(0, self.size - BLANKS - 1)) == (
            self.last + b"\n" if self.size else b""
        )


def read_mark(descriptor: int) -> Mark | None:
    """Return the mark; None when there is none, or none that is whole."""
    line = os.pread(descriptor, 4096, 0)
    if not is_sealed(line):
        return None
    try:
        values = loads(line)
        return Mark(int(values["size"]), int(values["count"]), _blanks(str(values["last"])))
    except (ValueError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class Contents:
    """What stands in a transcript: its lines, without those that are empty, and what is left of a cut one."""

    path: str
    lines: list[bytes]
    torn: bytes
    unended: bool
    """Whether the last line is whole and only its end is missing."""
    missing: int
    """How many messages were acknowledged and are not there."""

    @property
    def count(self) -> int:
        """How many messages should be there."""
        return len(self.lines) + self.missing

    def message_lines(self, start: int, stop: int) -> list[bytes]:
        """Return lines of a range. Raises `StoreDamaged` unless all up to `stop` are as they were written."""
        for number, line in enumerate(self.lines[:stop]):
            if not is_good(line):
                raise self.damage(f"is damaged (message {number} is not what was written)")
        if stop > len(self.lines):
            raise self.damage(f"is damaged (it has {len(self.lines)} messages of {self.count})")
        return self.lines[start:stop]

    def damage(self, what: str) -> Exception:
        """Return the error for this transcript."""
        return damaged(self.path, what, f"{REPAIR} {Path(self.path).parent.name}")


def contents(path: str, mark: Mark | None) -> Contents:
    """Read a transcript. Raises `StoreDamaged` when there is none."""
    try:
        data = read_all(path)
    except FileNotFoundError:
        raise damaged(path, "is missing") from None
    *whole, tail = data.split(b"\n")
    lines = [line for line in whole if line.strip()]
    unended = bool(tail) and is_good(tail)  # half an object is never an object
    if unended:
        lines.append(tail)
    torn = b"" if unended else tail
    ours = mark is not None and (bool(tail) or not lines or any(map(is_sealed, lines)))
    missing = max(0, mark.count - len(lines)) if mark is not None and ours else 0
    return Contents(path, lines, torn, unended, missing)


def append(path: str, lock: int, bodies: Sequence[bytes], at: int) -> int:
    """Add lines after the first `at`, on the disk when this returns; return how many there were.

    The caller holds the session's lock. When there were not `at` lines, nothing is written. Raises `StoreDamaged`.
    """
    mark = read_mark(lock)
    with opened(path, os.O_RDWR | os.O_APPEND) as transcript:
        if mark is None or not mark.describes(transcript):
            mark = _settled(path, transcript, mark)
        if mark.count != at or not bodies:
            return mark.count
        checksums = [checksum(body) for body in bodies]
        data = b"".join([part for pair in zip(bodies, checksums, strict=True) for part in (*pair, b"\n")])
        try:
            write_all(transcript, data)
            _to_disk(transcript)
        except BaseException:
            os.ftruncate(transcript, mark.size)
            raise
        Mark(mark.size + len(data), mark.count + len(bodies), checksums[-1]).write(lock)
        return mark.count


def rewrite(path: str, lines: Sequence[bytes]) -> Mark:
    """Put other lines in the place of the transcript; return the mark of its end.

    Whole lines without a checksum get one; a bad line stays as bad as it is.
    """
    kept = [line if is_sealed(line) or not is_good(line) else sealed(line) for line in lines]
    data = b"".join([line + b"\n" for line in kept])
    replace(path, data)
    return Mark(len(data), len(kept), split(kept[-1])[1] if kept else b"")


def keep_cut(path: str, data: bytes) -> None:
    """Keep what is cut away in a file beside `path`."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    write_new(f"{path}.cut-{now}", data)
    sync_folder(Path(path).parent)


def _settled(path: str, transcript: int, mark: Mark | None) -> Mark:
    """Bring a transcript that its mark does not describe into a state to append to; return a mark that does."""
    found = contents(path, mark)
    found.message_lines(0, found.count)
    if found.torn:
        keep_cut(path, found.torn)
        os.ftruncate(transcript, os.fstat(transcript).st_size - len(found.torn))
    elif found.unended:
        write_all(transcript, b"\n")
    last = split(found.lines[-1])[1] if found.lines else b""
    return Mark(os.fstat(transcript).st_size, len(found.lines), last)


def _to_disk(transcript: int) -> None:
    # macOS has no fdatasync, and its fsync leaves written data in the drive's cache
    sync = getattr(os, "fdatasync", os.fsync)
    sync(transcript)


def _digits(blanks: bytes) -> bytes:
    return blanks.replace(b" ", b"0").replace(b"\t", b"1").rjust(BLANKS, b"-")


def _blanks(digits: str) -> bytes:
    return digits.encode().replace(b"0", b" ").replace(b"1", b"\t").strip(b"-")
