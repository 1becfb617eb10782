"""Hear lines that a person types at the terminal while a turn runs; the terminal itself edits them."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .terminal import is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST = 65_536
"""Bytes that are read at once."""


class TypedLines:
    """The lines at stdin, during a turn. Call it in the event loop of the session.

    Lines that come together, as a paste does, are one text. Nothing is read while a question of a hook is open: the
    answer belongs to it. A line that nobody has heard is the next prompt.
    """

    def __init__(self) -> None:
        self.is_ended = False
        """Whether the person has ended the input, with Ctrl-D."""
        self._take: Callable[[str], None] | None = None

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

    def _watch(self) -> None:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def _ignore(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def _read(self) -> None:
        descriptor, pieces = sys.stdin.fileno(), []
        while select.select([descriptor], [], [], 0)[0]:
            piece = os.read(descriptor, LONGEST)
            if not piece:
                self.is_ended = True
                self._ignore()
                break
            pieces.append(piece)
        text = b"".join(pieces).decode(errors="replace").strip()
        if text and self._take is not None:
            self._take(text)
