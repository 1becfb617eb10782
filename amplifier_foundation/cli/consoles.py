"""Keep printed text from steering the terminal: names of files, answers and errors are text of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment

from .running.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType


class PlainConsole(Console):
    """Prints a replacement character for each control character except tab and newline."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print."""
        for segment in super().render(renderable, options):
            steers = not segment.control and not segment.text.isprintable()
            yield Segment(plain(segment.text), segment.style) if steers else segment


class QuietCursor(PlainConsole):
    """Leaves the cursor visible: a killed program cannot bring it back."""

    def show_cursor(self, show: bool = True) -> bool:
        """Change nothing."""
        return False
