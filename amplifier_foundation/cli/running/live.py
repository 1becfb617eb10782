"""Show the text of a turn at a terminal while it comes, as Markdown, and a sign of life while nothing comes."""

from __future__ import annotations

import sys
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.markdown import Markdown
from rich.spinner import Spinner
from rich.text import Text

from ...documents.safe_text import plain
from ..consoles import QuietCursor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, RenderableType

REFRESHES = 12.5
"""Drawings of the moving part, in a second; a piece of a text that comes after a pause is drawn at once."""
ROOM = 2
"""Rows of the screen that unfinished text leaves free."""

_parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")


class LiveTerminal:
    """Prints each block of Markdown when it is complete, with the unfinished rest of the text below.

    Nothing moves outside of that rest or the sign of life, so the text above can be scrolled, selected and piped.
    """

    def __init__(self) -> None:
        self.console = QuietCursor(file=sys.stdout, highlight=False)
        """The terminal, for others who draw at it."""
        self._live: Live | None = None
        self._drawn = 0.0
        """When a piece was drawn at once."""
        self._moving: RenderableType = ""
        self._typing = ""
        self._rest = ""
        self._shown = ""
        self._block: Any = None
        self._has_blocks = False
        """Whether this text has a printed block already: a blank line divides it from the next."""

    @property
    def can_move(self) -> bool:
        """Whether the terminal can draw a line again."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def add(self, piece: str, block: Any) -> None:
        """Show a piece of the text, and print the blocks that it completes."""
        if self._shown and block != self._block:
            self._rest += "\n\n"
        self._block = block
        self._shown += plain(piece)
        self._rest += plain(piece)
        end = find_last_block(self._rest)
        if end:
            self._print(self._rest[:end])
            self._rest = self._rest[end:]
        now = time.monotonic()
        is_due = now - self._drawn >= 1 / REFRESHES
        self._drawn = now if is_due else self._drawn
        self._draw(_Tail(self._rest), at_once=is_due)

    def finish(self) -> str:
        """Print the rest of the text, and return all of it; a sign of life stays."""
        shown, rest = self._shown, self._rest
        if shown:
            self.pause()
            if rest.strip():
                self._print(rest)
        self._shown, self._rest, self._has_blocks = "", "", False
        return shown

    def show(self, text: str) -> None:
        """Print an answer as Markdown."""
        self.pause()
        self.console.print(OurMarkdown(plain(text)))

    def wait(self, label: str) -> None:
        """Show a moving sign with the label and the seconds since now; the text has been finished."""
        self._draw(_Pulse(plain(label)))

    def show_typing(self, text: str) -> None:
        """Show the beginning of a line that the person types, below the moving part."""
        self._typing = plain(text)
        if self._live is not None:
            self._draw(self._moving, at_once=True)

    def pause(self) -> None:
        """Take away the moving part."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, text: str) -> None:
        if self._has_blocks:
            self.console.print()
        self._has_blocks = True
        self.console.print(OurMarkdown(text))

    def _draw(self, moving: RenderableType, *, at_once: bool = False) -> None:
        self._moving = moving
        if self._typing:
            moving = Group(moving, _Typing(self._typing))
        if self._live is not None:
            self._live.update(moving, refresh=at_once)
            return
        self._live = _Moving(moving, self.console)
        self._live.start(refresh=True)


class _Moving(Live):
    """The moving part of a console, drawn again and again, but never within a print of another thread.

    Such a print has looked how many rows the part has, and replaces as many.
    """

    def __init__(self, moving: RenderableType, console: QuietCursor) -> None:
        redirects = sys.stderr.isatty()  # lines for a person go above the moving part
        super().__init__(moving, console=console, auto_refresh=False, transient=True, redirect_stderr=redirects)
        self._drawing = console.drawing
        self._ended = Event()

    def start(self, refresh: bool = False) -> None:
        with self._drawing:
            super().start(refresh)
        Thread(target=self._follow, name="moving", daemon=True).start()

    def update(self, renderable: RenderableType, *, refresh: bool = False) -> None:
        with self._drawing:
            super().update(renderable, refresh=refresh)

    def stop(self) -> None:
        self._ended.set()
        with self._drawing:
            super().stop()

    def _follow(self) -> None:
        while not self._ended.wait(1 / REFRESHES):
            with self._drawing:
                if not self._ended.is_set():
                    self.refresh()


class OurMarkdown(Markdown):
    """Markdown as models write it: each line ends at its end, and HTML is text."""

    def __init__(self, text: str) -> None:
        super().__init__("")
        self.markup, self.parsed = text, _parser.parse(text)
        for token in self.parsed:
            for child in token.children or ():
                child.type = "hardbreak" if child.type == "softbreak" else child.type


class _Tail:
    """The last rows of a text, as many as the screen has room for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        rows = max(1, options.size.height - ROOM)
        text = Text(self._text[-rows * options.max_width :].rstrip("\n"))
        yield from text.wrap(console, options.max_width)[-rows:]


class _Typing:
    """A line that is typed: its end, in one row."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        begin = max(0, len(self._text) - options.max_width)
        while cell_len(self._text[begin:]) > options.max_width - 3:  # with the mark, and room for the cursor
            begin += 1
        yield Text(f"» {self._text[begin:]}", no_wrap=True)


class _Pulse:
    """A spinner, a label and the seconds since it began."""

    def __init__(self, label: str) -> None:
        self._label, self._began, self._spinner = label, time.monotonic(), Spinner("dots")

    def __rich__(self) -> Text:
        elapsed = time.monotonic() - self._began
        frames = self._spinner.frames
        frame = frames[int(elapsed * 1000 / self._spinner.interval) % len(frames)]
        return Text(
            f"{frame} {self._label}{', ' if self._label else ''}{int(elapsed)} s",
            style="dim",
            no_wrap=True,
            overflow="ellipsis",
        )


def find_last_block(text: str) -> int:
    """Return the position of the last block of a Markdown text on its way: all before it is complete.

    The last line counts when it has ended.
    """
    tokens: list[Token] = _parser.parse(text[: text.rfind("\n") + 1])
    starts = [token.map[0] for token in tokens if token.map and token.level == 0 and token.nesting >= 0]
    return sum(len(line) + 1 for line in text.split("\n")[: starts[-1]]) if len(starts) > 1 else 0
