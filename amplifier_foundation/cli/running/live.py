"""Show the text of a turn at a terminal while it comes, as Markdown, and a sign of life while nothing comes."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from itertools import takewhile
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Group, RenderHook
from rich.control import Control
from rich.file_proxy import FileProxy
from rich.markdown import Markdown
from rich.segment import ControlType, Segment, Segments
from rich.spinner import Spinner
from rich.text import Text

from ...documents.safe_text import plain
from ..consoles import QuietCursor
from .terminal import holds_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType

REFRESHES = 12.5
"""Drawings of the moving part, in a second; a piece of a text that comes after a pause is drawn at once."""
AWAY = 1.0
"""Idle seconds without a drawing, as the sign of a suspension: the rows above the cursor may be a shell's.

SIGCONT would tell it too late: the drawing goes on before a handler in Python runs.
"""
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
        self._live: _Moving | None = None
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
            self._live.update(moving, at_once=at_once)
            return
        self._live = _Moving(moving, self.console)
        self._live.start()


class _Moving(RenderHook):
    """The moving part of a console: rows below all that is printed. The cursor stands at the end of the last one.

    Of the rows, those are written that have changed, and of a row that has only grown, the rest. While the terminal
    belongs to another program, as the shell beside a job in the background, there are no rows.
    """

    def __init__(self, moving: RenderableType, console: QuietCursor) -> None:
        self._moving = moving
        self._console = console
        self._rows: list[list[Segment]] = []
        """What is on the screen."""
        self._looked = _idle_time()
        """When the last drawing ended: one comes every 1 / `REFRESHES` seconds, unless the program is suspended."""
        self._redirections = ExitStack()
        self._ended = Event()

    def start(self) -> None:
        """Draw the part, again and again until `stop`; what is printed, also on stderr, goes above it."""
        with self._console.drawing:
            self._console.push_render_hook(self)
            proxies: Any = FileProxy(self._console, sys.stdout), FileProxy(self._console, sys.stderr)
            self._redirections.enter_context(redirect_stdout(proxies[0]))
            if sys.stderr.isatty():  # lines for a person
                self._redirections.enter_context(redirect_stderr(proxies[1]))
            self._refresh()
        Thread(target=self._follow, name="moving", daemon=True).start()

    def update(self, moving: RenderableType, *, at_once: bool) -> None:
        """Draw another part from the next drawing on, or at once."""
        with self._console.drawing:
            self._moving = moving
            if at_once:
                self._refresh()

    def stop(self) -> None:
        """Take the part away."""
        self._ended.set()
        with self._console.drawing:
            self._redirections.close()
            self._console.pop_render_hook()
            self._forget_lost()
            self._console.control(_erase(self._rows))

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return what a print of others writes; the console holds `drawing`."""
        if self._ended.is_set():
            return renderables
        rows = self._render()
        before, self._rows = self._rows, rows
        return [_erase(before), *renderables, Segments(_join(rows))]

    def _follow(self) -> None:
        while not self._ended.wait(1 / REFRESHES):
            with self._console.drawing:
                if not self._ended.is_set():
                    self._refresh()
                    self._looked = _idle_time()

    def _render(self) -> list[list[Segment]]:
        if not self._forget_lost():
            return []
        return self._console.render_lines(self._moving, pad=False)[-self._console.options.size.height :]

    def _forget_lost(self) -> bool:
        """Forget the rows below which another program has written, as a shell while this one was suspended.

        Return whether the terminal is for this program.
        """
        now, holds = _idle_time(), holds_terminal(self._console.file)
        if now - self._looked > AWAY + 1 / REFRESHES or not holds:
            self._rows = []
        self._looked = now
        return holds

    def _refresh(self) -> None:
        """Write the difference between the rows on the screen and those of now."""
        rows = self._render()
        before, self._rows = self._rows, rows
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, rows, strict=False)))
        added = _find_added(before[same], rows[same]) if same == len(before) - 1 and same < len(rows) else None
        if same < len(before) and added is None:
            same = max(0, min(same, len(rows) - 1))  # the cursor stands at the end of a row
            written = [_erase(before[same:]).segment, *_join(rows[same:])]
        else:
            below = rows[same:] if added is None else rows[same + 1 :]
            written = [*(added or ()), *([Segment.line()] if before and below else ()), *_join(below)]
        if rows != before:
            self._write(written)

    def _write(self, segments: list[Segment]) -> None:
        """Write segments as they are: a print would ask what stands below it."""
        with self._console:
            for segment in segments:
                control = Control()
                control.segment = segment
                self._console.control(control)


def _idle_time() -> float:
    """Return seconds in which this process has done nothing; work that holds up the drawing does not count."""
    return time.monotonic() - time.process_time()


def _erase(rows: list[list[Segment]]) -> Control:
    """Return the codes that clear rows, from the cursor in the last one up; it is at the begin of the first then."""
    clear = ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)
    up = (ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)
    return Control(*clear, *up * (len(rows) - 1)) if rows else Control()


def _join(rows: list[list[Segment]]) -> list[Segment]:
    return [segment for row in rows for segment in (Segment.line(), *row)][1:]


def _find_added(row: list[Segment], grown: list[Segment]) -> list[Segment] | None:
    """Return the segments that a row has got at its end; None: it has changed otherwise."""
    *same, last = row or [Segment("")]
    at = len(same)
    if at >= len(grown) or grown[:at] != same or grown[at].style != last.style:
        return None
    text, begun = grown[at].text, last.text
    return [Segment(text[len(begun) :], last.style), *grown[at + 1 :]] if text.startswith(begun) else None


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
