"""Hear lines that a person types at the terminal while a turn runs."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import select
import sys
import termios
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.permissions.hidden import JOINERS

from .terminal import is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST = 65_536
"""Bytes that are read at once."""
_ESCAPED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""Arrows, and the marks around a paste."""
_ENDED = re.compile(r"\r\n?")
"""The end of a line that came while the prompt was open: the terminal makes no newline of it then."""


class TypedLines:
    """The lines at stdin, during a turn. Call it in the event loop of the session.

    With `show`, which is called with the beginning of a line at each key, the terminal prints no key itself: it would
    print it among what moves. Without, the terminal edits the lines.

    Lines that come together, as a paste does, are one text. Nothing is read while a question of a hook is open: the
    answer belongs to it. A line that nobody has heard is the next prompt.
    """

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self.is_ended = False
        """Whether the person has ended the input, with Ctrl-D."""
        self._show = show
        self._line = ""
        self._take: Callable[[str], None] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._modes: list[Any] | None = None
        """Those of the terminal, while it prints no keys."""

    @contextmanager
    def hear(self, take: Callable[[str], None]) -> Iterator[None]:
        """Call `take` with each text while the block runs; without a terminal at stdin nothing comes."""
        if not is_terminal(sys.stdin.fileno()):
            yield
            return
        self._take = take
        self._watch()
        try:
            yield
        finally:
            self._take = None
            self._ignore()

    @contextmanager
    def leave(self) -> Iterator[None]:
        """Leave the terminal to a question while the block runs."""
        self._ignore()
        try:
            yield
        finally:
            if self._take is not None:
                self._watch()

    def take_begun(self) -> str:
        """Return the beginning of a line, which is typed no more here."""
        begun, self._line = self._line, ""
        return begun

    def give_back(self) -> None:
        """Have the terminal print keys again; idempotent."""
        modes, self._modes = self._modes, None
        if modes is not None:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)

    def _watch(self) -> None:
        descriptor = sys.stdin.fileno()
        if self._show is not None:
            self._silence(descriptor)
            self._show(self._line)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _silence(self, descriptor: int) -> None:
        """Have the terminal print no keys; also again, since a shell that went on with this program has set its own."""
        with suppress(termios.error, OSError):
            if os.tcgetpgrp(descriptor) == os.getpgrp():  # another program's terminal is left alone
                modes = termios.tcgetattr(descriptor)
                self._modes = self._modes or [*modes]
                modes[3] &= ~(termios.ICANON | termios.ECHO)
                termios.tcsetattr(descriptor, termios.TCSANOW, modes)

    def _ignore(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self.give_back()
        if self._show is not None:
            self._show("")

    def _read(self) -> None:
        descriptor, pieces = sys.stdin.fileno(), list[bytes]()
        while select.select([descriptor], [], [], 0)[0]:
            piece = os.read(descriptor, LONGEST)
            if not piece or (piece == b"\x04" and not self._line and not pieces):
                self.is_ended = True
                self._ignore()
                break
            pieces.append(piece)
        typed = _ENDED.sub("\n", _ESCAPED.sub("", self._decoder.decode(b"".join(pieces))))
        for key in typed:
            self._line = edit(self._line, key)
        text, end, self._line = self._line.rpartition("\n")
        if self._show is not None and self._modes is not None:
            self._silence(descriptor)
            self._show(self._line)
        if end and text.strip() and self._take is not None:
            self._take(text.strip())


def edit(line: str, key: str) -> str:
    """Return a line after a key: a character, or one that deletes the last one (^H), the last word (^W) or all (^U)."""
    if key in "\x7f\b":
        return line[:-1]
    if key == "\x17":
        return line.rstrip()[: line.rstrip().rfind(" ") + 1]
    if key == "\x15":
        return ""
    return line + (key if key.isprintable() or key in f"\n{JOINERS}" else " " if key == "\t" else "")
