"""Print the text of a turn: whole into a pipe, or as it comes at a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

import click

from ...documents.safe_text import plain
from ..own_stdout import own_stdout

if TYPE_CHECKING:
    from ..consoles import QuietCursor


class Screen(Protocol):
    """The place for the text of a turn."""

    @property
    def console(self) -> QuietCursor | None:
        """The terminal, if it can move its cursor."""
        ...

    def add(self, piece: str, block: Any) -> None:
        """Show a piece of the text; `block` is the index of its block."""
        ...

    def finish(self) -> str:
        """End the text; return all of it since the last call."""
        ...

    def show(self, text: str) -> None:
        """Show a whole answer."""
        ...

    def show_typing(self, text: str) -> None:
        """Show the beginning of a line that the person types."""
        ...

    def wait(self, label: str) -> None:
        """Give a sign of life, with the seconds since now, below a finished text until more is shown."""
        ...

    def pause(self) -> None:
        """Leave the terminal to others: a question, a prompt."""
        ...


class Pipe:
    """Prints the answers alone, without characters that steer a terminal: the reader of a pipe may be one."""

    console: QuietCursor | None = None

    def add(self, piece: str, block: Any) -> None:
        """Show nothing: the answer comes whole."""

    def finish(self) -> str:
        """Return nothing: nothing was shown."""
        return ""

    def show(self, text: str) -> None:
        """Print an answer."""
        click.echo(plain(text.replace("\r\n", "\n")), file=own_stdout())

    def show_typing(self, text: str) -> None:
        """Show nothing: the terminal prints the keys."""

    def wait(self, label: str) -> None:
        """Show nothing."""

    def pause(self) -> None:
        """Have nothing to pause."""


class PlainTerminal(Pipe):
    """Prints the text as it comes, at a terminal that cannot move its cursor."""

    def __init__(self, *, streams: bool = True) -> None:
        self._streams = streams
        self._shown = ""
        self._block: Any = None

    def add(self, piece: str, block: Any) -> None:
        """Print a piece; each block begins a line."""
        if not self._streams:
            return
        if self._shown and block != self._block:
            click.echo()
        self._block = block
        self._shown += plain(piece)
        click.echo(plain(piece), nl=False)
        sys.stdout.flush()

    def finish(self) -> str:
        """End the line of the text, and return the text."""
        shown, self._shown = self._shown, ""
        if shown and not shown.endswith("\n"):
            click.echo()
        return shown

    def show(self, text: str) -> None:
        """Print an answer without characters that steer a terminal."""
        click.echo(plain(text))


def open_screen(*, quiet: bool) -> Screen:
    """Return the screen for stdout; `quiet`: for answers alone."""
    if not own_stdout().isatty():
        return Pipe()
    if quiet:
        return PlainTerminal(streams=False)
    from .live import LiveTerminal

    live = LiveTerminal()
    return live if live.can_move else PlainTerminal()
