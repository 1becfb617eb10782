"""The mark in a session's `.lock`: how far its transcript was acknowledged.

It is written after the lines are on the disk and is not flushed itself: it is never ahead of what is durable. So a
transcript that ends before its mark has lost messages, and what stands after its mark was on its way when its writer
was killed, or is another tool's. A transcript whose lines have no checksums was written by another tool; its mark means
nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .lines import BLANKS, is_sealed, loads, sealed

_FORMAT = b'{"size":%15d,"count":%12d,"last":"%s","file":"%s"}'
_LONGEST = 4096
_AS_BLANKS, _AS_DIGITS = bytes.maketrans(b"01", b" \t"), bytes.maketrans(b" \t", b"01")


@dataclass(frozen=True, slots=True)
class Mark:
    """The length of a transcript in bytes and in messages, and the checksum of its last line.

    `file` (16 hex digits) is another one each time that lines were found or put where none had been appended: marks
    with the same one are of a transcript that was appended to in between, and nothing else.
    """

    size: int = 0
    count: int = 0
    last: bytes = b""
    file: bytes = b"0" * 16

    def line(self) -> bytes:
        """Return what stands in the file: as long for each mark, so that one is written over another."""
        return sealed(_FORMAT % (self.size, self.count, _digits(self.last), self.file))

    def write(self, descriptor: int) -> None:
        """Write over the mark before."""
        os.pwrite(descriptor, self.line(), 0)

    def describes(self, transcript: int) -> bool:
        """Return whether the open transcript has the line of this mark where the mark says."""
        return not self.size or os.pread(transcript, BLANKS + 1, max(0, self.size - BLANKS - 1)) == self.last + b"\n"

    def stands_in(self, data: bytes) -> bool:
        """Return whether `data`, all of a transcript, has it."""
        return not self.size or data[max(0, self.size - BLANKS - 1) : self.size] == self.last + b"\n"


def read_line(descriptor: int) -> bytes:
    """Return what stands where the mark is."""
    return os.pread(descriptor, _LONGEST, 0)


def to_mark(line: bytes) -> Mark | None:
    """Return the mark of what `read_line` returned; None when there is none, or none that is whole."""
    if not is_sealed(line):
        return None
    try:
        values = loads(line)
        return Mark(
            int(values["size"]), int(values["count"]), _blanks(str(values["last"])), str(values["file"]).encode()
        )
    except (ValueError, KeyError):
        return None


def new_file() -> bytes:
    """Return what no other mark has as its `file`."""
    return os.urandom(8).hex().encode()


def _digits(blanks: bytes) -> bytes:
    return blanks.translate(_AS_DIGITS).rjust(BLANKS, b"-")


def _blanks(digits: str) -> bytes:
    return digits.encode().translate(_AS_BLANKS).strip(b"-")
