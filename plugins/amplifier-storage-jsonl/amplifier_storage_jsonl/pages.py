"""A transcript that its mark describes, read in parts: a page of a long one costs what that page costs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from .transcript import parsed, too_short

if TYPE_CHECKING:
    from amplifier_core.transcript import Message

    from .marks import Mark

_Line: TypeAlias = tuple[int, bytes]
"""Where a line begins, and the line."""
_STEP = 256
"""Of so many messages, the place of one is remembered."""
_LEAST = 4096
"""Bytes of a read; more when the lines that are wanted are likely to take more."""


class Places:
    """Where some of the lines of a transcript begin, as far as earlier reads came by them."""

    def __init__(self) -> None:
        self._known: tuple[bytes, dict[int, int]] = b"", {}

    def of(self, mark: Mark) -> dict[int, int]:
        """Return offset by message, to be added to; nothing of a file that another one was put in the place of."""
        if self._known[0] != mark.file:
            self._known = mark.file, {0: 0}
        return self._known[1]


@dataclass(frozen=True, slots=True)
class Pages:
    """The first `mark.count` messages of an open transcript."""

    path: str
    transcript: int
    mark: Mark
    places: dict[int, int]

    @property
    def count(self) -> int:
        """How many messages are there."""
        return self.mark.count

    def messages(self, start: int, stop: int, first: int = 0) -> list[Message]:
        """Return messages of a range, of a transcript whose own first one is message `first` of its session.

        What lies between them and the nearest known place is read too, and has to be good: lines are counted. Raises
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
        found = parsed(self.path, [line for _, line in lines], at, range(start, stop), first)
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
        """Return so many lines that stand before message `end`."""
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
    """Return the lines of `data`, which begins at `offset`, without those that are empty."""
    found = []
    for line in data.split(b"\n"):
        if line and not line.isspace():
            found.append((offset, line))
        offset += len(line) + 1
    return found
