"""Keep the output of a command within a bound: its beginning, its end, and a note about the middle."""

from __future__ import annotations

import codecs


class Output:
    """Text from bytes as they come; bytes besides UTF-8 are replaced."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = ""
        self._tail = ""
        self._cut = 0

    def add(self, data: bytes, *, is_last: bool = False) -> str:
        """Take bytes in; return their text."""
        text = self._decoder.decode(data, final=is_last)
        room = self._most // 2 - len(self._head) if not self._tail else 0
        self._head += text[:room]
        self._tail += text[room:]
        over = len(self._tail) - (self._most - self._most // 2)
        if over > 0:
            self._tail = self._tail[over:]
            self._cut += over
        return text

    @property
    def last(self) -> str:
        """The last characters that nobody has taken yet."""
        return (self._head + self._tail)[-2_000:]

    def take(self) -> str:
        """Return the text since the last time, with a note of how many characters are missing."""
        note = f"\n[{self._cut} characters are missing here]\n" if self._cut else ""
        text = f"{self._head}{note}{self._tail}"
        self._head = self._tail = ""
        self._cut = 0
        return text
