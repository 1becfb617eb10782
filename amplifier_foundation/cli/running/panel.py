"""Pin a panel of the session below the conversation, in rows of the screen that do not scroll.

The panel takes the last rows at every width. A panel at the right would need margins at both sides, which few terminals
know, or it would scroll away with the rows that it shares with the conversation. A region that begins in the first row
keeps the scrollback of most terminals.
"""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import time
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol

from rich.control import Control
from rich.segment import Segment, Segments
from rich.text import Text

from amplifier_core.utils.secrets import redact_text

from ...documents.safe_text import plain
from ..consoles import QuietCursor

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL = 0.25
"""Seconds between two looks at the panel's news and the size of the screen."""
REFRESH = 1.0
"""Seconds after which the panel is drawn again unasked: a program may have cleared the screen."""
SMALLEST = 12
"""Rows of the smallest screen with a panel."""
MOST = 10
"""Rows of the largest panel; it takes a third of the screen at most."""

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_WHOLE = f"{_SAVE}\x1b[r{_RESTORE}"
"""Lets the whole screen scroll; a change of the region moves the cursor."""
_CLEAR_BELOW = "\x1b[J"
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"
_SPACES = str.maketrans("\t\n", "  ")


class ConversationPanel(Protocol):
    """The capability `conversation.panel` of a session, called in its event loop or while that waits."""

    def render(self, width: int, height: int) -> list[Text]:
        """Return at most `height` lines of at most `width` cells; an empty list: there is nothing to show."""
        ...

    def subscribe(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` from any thread when there is something new; return a function that ends this."""
        ...


class Panel:
    """Draws `source` in the last rows of the terminal of `console`, below a line.

    It is made in the session's event loop, which renders the news. All methods are called in the main thread, so
    nothing is drawn while `readline` draws; `call` has it call a function at once, and waits for its end. Everything
    below the cursor belongs to the panel, except `rows_below(width)` rows of a typed line. An error of `source` closes
    the panel; it is then the `problem`.
    """

    def __init__(
        self,
        source: ConversationPanel,
        console: QuietCursor,
        call: Callable[[Callable[[], None]], None],
        rows_below: Callable[[int], int],
    ) -> None:
        self.source = source
        self.problem: Exception | None = None
        self._console = console
        self._call = call
        self._rows_below = rows_below
        self._loop = asyncio.get_running_loop()
        self._unsubscribe: Callable[[], None] | None = None
        self._lines: list[Text] = []
        self._size = os.terminal_size((0, 0))
        """The size of the screen at the last drawing."""
        self._rows = 0
        """Rows of the panel on the screen, with its line."""
        self._drawn = 0.0
        self._is_new = True
        self._rendered = Event()
        self._closed = Event()
        self._suspending: signal.Handlers | Callable[..., object] | int | None = None
        """The handler of a suspension that this one replaces."""

    def open(self) -> None:
        """Draw the panel, and again with its news, until `close`; the event loop waits."""
        if signal.getsignal(signal.SIGTSTP) not in (signal.SIG_IGN, None):  # None: C code handles it
            self._suspending = signal.signal(signal.SIGTSTP, self._on_suspend)
        try:
            self._unsubscribe = self.source.subscribe(self._notify)
        except Exception as problem:
            self.problem = problem
        self._render()
        self.draw()
        Thread(target=self._follow, name="panel", daemon=True).start()

    def close(self) -> None:
        """Give the rows of the panel back."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._hide()
        self._console.taken = 0
        if self._suspending is not None:
            signal.signal(signal.SIGTSTP, self._suspending)
        if self._unsubscribe is not None:
            with suppress(Exception):  # the panel is gone, and the conversation goes on
                self._unsubscribe()

    def fit(self) -> None:
        """Draw the panel with as many rows as it needs; the event loop waits."""
        self._render()
        self.draw(fit=True)

    def draw(self, *, fit: bool = False) -> None:
        """Draw the last lines; the panel grows as it needs, but shrinks to `fit` alone: the text stands still."""
        if self._closed.is_set() or (size := self._measure()) is None:
            return
        self._drawn = time.monotonic()
        most = _count_rows(size)
        try:
            rows = _style_rows(self._lines[: max(0, most - 1)], size.columns) if self.problem is None else []
        except Exception as problem:  # a line may be anything
            self.problem = problem
        if self.problem is not None:
            self.close()
            return
        if rows and not fit and size == self._size:
            rows += [""] * (self._rows - len(rows))
        self._console.taken = most
        self._place(rows, size)

    def _notify(self) -> None:
        self._is_new = True

    def _follow(self) -> None:
        """Have the panel rendered and drawn when it is due, in a thread of its own."""
        while not self._closed.wait(INTERVAL):
            if self._measure() not in (None, self._size):
                self._is_new = True
                self._call(self.draw)  # at once: the event loop may be busy
            if self._is_new or time.monotonic() - self._drawn >= REFRESH:
                self._rendered.clear()
                with suppress(RuntimeError):  # the event loop has ended
                    self._loop.call_soon_threadsafe(self._render)
                if self._rendered.wait(INTERVAL):
                    self._call(self.draw)

    def _render(self) -> None:
        """Ask for the lines; call this in the event loop, or while that waits."""
        size = self._measure()
        if size is not None and self.problem is None and not self._closed.is_set():
            self._is_new = False
            most = _count_rows(size)
            try:
                self._lines = self.source.render(size.columns, most - 1) if most else []
            except Exception as problem:
                self.problem = problem
        self._rendered.set()

    def _measure(self) -> os.terminal_size | None:
        """Return the size of the screen; None while the terminal is not for this program."""
        descriptor = self._console.file.fileno()
        try:
            return os.get_terminal_size(descriptor) if os.tcgetpgrp(descriptor) == os.getpgrp() else None
        except OSError:
            return None

    def _place(self, lines: list[str], size: os.terminal_size) -> None:
        """Write the rows at the end of the screen, and let the rows above scroll; the cursor stays in its text."""
        rows, is_resized = len(lines), bool(self._rows) and size != self._size
        below = self._rows_below(size.columns) if is_resized or rows > self._rows else 0
        codes = _WHOLE
        if is_resized:  # nobody knows where the rows of the panel are now, but they are below the cursor
            codes += _make_room(max(rows, 1) + below) + f"{_SAVE}\x1b[{below + 1}B\r{_CLEAR_BELOW}{_RESTORE}"
        elif rows != self._rows and self._rows:
            codes += f"{_SAVE}\x1b[{size.lines - self._rows + 1};1H{_CLEAR_BELOW}{_RESTORE}"
        if rows:
            top = size.lines - rows + 1
            drawn = "".join(f"\x1b[{top + at};1H\x1b[K{line}" for at, line in enumerate(lines))
            codes += f"{_make_room(rows + below)}{_SAVE}\x1b[1;{top - 1}r{_CUT}{drawn}{_WRAP}{_RESTORE}"
        if rows or self._rows:
            self._write(codes)
        self._rows, self._size = rows, size

    def _write(self, codes: str) -> None:
        control = Control()
        control.segment = Segment(codes)
        with suppress(OSError):  # the terminal is gone
            self._console.control(control)

    def _hide(self) -> None:
        if (size := self._measure()) is not None:
            self._place([], size)

    def _on_suspend(self, number: int, frame: object) -> None:
        self._hide()
        descriptor = self._console.file.fileno()
        modes = termios.tcgetattr(descriptor)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # returns when the program goes on
        signal.signal(number, self._on_suspend)
        if self._measure() is not None:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)  # the shell has set its own
        self.draw()


def _count_rows(size: os.terminal_size) -> int:
    """Return the rows of the largest panel on a screen of this size, with its line."""
    return min(MOST, size.lines // 3) if size.lines >= SMALLEST else 0


def _make_room(rows: int) -> str:
    """Return codes that scroll until there are so many rows below the cursor; it stays in its text."""
    return "\x1bD" * rows + f"\x1b[{rows}A"


def _make_harmless(text: Text) -> Text:
    """Return one line without secrets, and without characters that steer a terminal."""
    shown = plain(text.plain).translate(_SPACES)
    safe = redact_text(shown)
    line = text.copy() if safe == shown else Text(style=text.style)
    line.plain = safe
    return line


def _style_rows(lines: list[Text], width: int) -> list[str]:
    """Return a rule and the lines as text with codes for colours, cut at the width; links are left out."""
    canvas, rows = QuietCursor(force_terminal=True, highlight=False, width=width, height=MOST), []
    for text in (Text("─" * width, style="dim"), *map(_make_harmless, lines)) if lines else ():
        text.no_wrap, text.overflow = True, "ellipsis"
        [segments, *_] = canvas.render_lines(text, pad=False)
        with canvas.capture() as captured:
            unlinked = (Segment(each.text, each.style and each.style.update_link(None)) for each in segments)
            canvas.print(Segments(unlinked), end="")
        rows.append(captured.get())
    return rows
