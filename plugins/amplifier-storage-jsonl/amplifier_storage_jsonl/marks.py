"""Keep the mark in a session's `.lock`: the acknowledged end of its transcript.

The mark is written after the lines are on the disk and is not flushed: it never runs ahead of durable lines. So a
transcript ending before its mark has lost messages. Lines after the mark come from a killed writer or another tool. A
transcript without checksums comes from another tool; its mark means nothing.
"""

from __future__ import annotations

import os

from amplifier_core.frozen import frozen

from .lines import BLANKS, is_sealed, loads, seal

_FORMAT = b'{"size":%15d,"count":%12d,"last":"%s","file":"%s"}'
_LONGEST = 4096
_AS_BLANKS, _AS_DIGITS = bytes.maketrans(b"01", b" \t"), bytes.maketrans(b" \t", b"01")


@frozen
class Mark:
    """Hold the length of a transcript in bytes and in messages, and the checksum of its last line.

    `file` (16 hex digits) changes whenever lines are found or written other than by appending: between two marks with
    the same `file`, the transcript was only appended to.
    """

    size: int = 0
    count: int = 0
    last: bytes = b""
    file: bytes = b"0" * 16

    def line(self) -> bytes:
        """Return the mark as text, with the same length for every mark: one is written over another."""
        last = self.last.translate(_AS_DIGITS).rjust(BLANKS, b"-")
        return seal(_FORMAT % (self.size, self.count, last, self.file))

    def write(self, descriptor: int) -> None:
        """Write over the mark before."""
        os.pwrite(descriptor, self.line(), 0)

    def describes(self, transcript: int) -> bool:
        """Return whether the open transcript has the mark's last line in its place."""
        return not self.size or os.pread(transcript, BLANKS + 1, max(0, self.size - BLANKS - 1)) == self.last + b"\n"

    def stands_in(self, data: bytes) -> bool:
        """Return whether `data`, the whole transcript, has the mark's last line in its place."""
        return not self.size or data[max(0, self.size - BLANKS - 1) : self.size] == self.last + b"\n"


def read_line(descriptor: int) -> bytes:
    """Return the text of the mark."""
    return os.pread(descriptor, _LONGEST, 0)


def to_mark(line: bytes) -> Mark | None:
    """Return the mark of a text from `read_line`, None unless it is complete."""
    if not is_sealed(line):
        return None
    try:
        values = loads(line)
        last = str(values["last"]).encode().translate(_AS_BLANKS).strip(b"-")
        return Mark(int(values["size"]), int(values["count"]), last, str(values["file"]).encode())
    except (ValueError, KeyError):
        return None


def new_file() -> bytes:
    """Return a new value for a mark's `file`."""
    return os.urandom(8).hex().encode()
