"""Read a transcript with a valid mark in parts: a page of a long one costs as much as that page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from amplifier_core.frozen import frozen

from .transcript import parse, too_short

if TYPE_CHECKING:
    from amplifier_core.transcript import Message

    from .marks import Mark

_Line: TypeAlias = tuple[int, bytes]
"""Where a line begins, and the line."""
_STEP = 256
"""Of so many messages, the place of one is remembered."""
_LEAST = 4096
"""Bytes of a read; more for lines likely to take more."""


class Places:
    """Remember the offsets of some lines of a transcript, from earlier reads."""

    def __init__(self) -> None:
        self._known: tuple[bytes, dict[int, int]] = b"", {}

    def of(self, mark: Mark) -> dict[int, int]:
        """Return offsets by message, for adding more; a replaced file begins with none."""
        if self._known[0] != mark.file:
            self._known = mark.file, {0: 0}
        return self._known[1]


@frozen
class Pages:
    """Read the first `mark.count` messages of an open transcript."""

    path: str
    transcript: int
    mark: Mark
    places: dict[int, int]

    @property
    def count(self) -> int:
        """How many messages are there."""
        return self.mark.count

    def messages(self, start: int, stop: int, first: int = 0) -> list[Message]:
        """Return messages of a range; the transcript's own first one is message `first` of its session.

        Lines between the range and the nearest known offset are counted, so they are read and must be good. Raises
        `StoreDamaged`.
        """
        if stop > self.count:
            raise too_short(self.path, self.count, stop)
        if start >= stop:
            return []
        known = list(self.places)  # at once, because other threads add to them
        below = max(place for place in known if place <= start)
        above = min([place for place in known if place >= stop], default=self.count)
        if stop - below <= above - start:
            at, lines = below, self._after(below, stop - below)
        else:
            at, lines = start, self._before(above, above - start)
        found = parse(self.path, [line for _, line in lines], at, range(start, stop), first)
        self.places.update({number: offset for number, (offset, _) in enumerate(lines, at) if not number % _STEP})
        return found

    def _after(self, at: int, wanted: int) -> list[_Line]:
        """Return so many lines from message `at` on."""
        begin, size = self.places[at], self._likely(wanted)
        while True:
            data = os.pread(self.transcript, min(size, self.mark.size - begin), begin)
            lines = _lines(data[: data.rfind(b"\n") + 1], begin)
            if len(lines) >= wanted:
                return lines[:wanted]
            if len(data) < size:
                raise too_short(self.path, at + len(lines), self.count)
            size *= 2

    def _before(self, end: int, wanted: int) -> list[_Line]:
        """Return so many lines before message `end`."""
        limit, size = self.places.get(end, self.mark.size), self._likely(wanted)
        while True:
            begin = max(0, limit - size)
            data = os.pread(self.transcript, limit - begin, begin)
            cut = data.find(b"\n") + 1 if begin else 0
            lines = _lines(data[cut:], begin + cut)
            if len(lines) >= wanted:
                return lines[-wanted:]
            if not begin:
                raise too_short(self.path, self.count - end + len(lines), self.count)
            size *= 2

    def _likely(self, wanted: int) -> int:
        return max(_LEAST, wanted * self.mark.size // self.mark.count * 9 // 8)


def _lines(data: bytes, offset: int) -> list[_Line]:
    """Return the lines of `data`, beginning at `offset`, without empty ones."""
    found = []
    for line in data.split(b"\n"):
        if line and not line.isspace():
            found.append((offset, line))
        offset += len(line) + 1
    return found
