"""Keep printed text from steering the terminal: names of files, answers and errors are text of others."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleDimensions
from rich.segment import Segment

from ..documents.safe_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from rich.console import ConsoleOptions, RenderableType


class PlainConsole(Console):
    """Prints a replacement character for each control character except tab and newline."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print."""
        for segment in super().render(renderable, options):
            steers = not segment.control and not segment.text.isprintable()
            yield Segment(plain(segment.text), segment.style) if steers else segment

    def on_broken_pipe(self) -> None:
        """Raise the `BrokenPipeError` being handled: the command line ends as after every other print."""
        raise  # rich calls this in its `except`


class QuietCursor(PlainConsole):
    """Leaves the cursor visible: a killed program cannot bring it back."""

    taken = 0
    """Rows at the end of the screen that belong to others."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.drawing = RLock()
        """Held while something is printed: one print at a time moves the cursor."""

    def __enter__(self) -> Self:
        self.drawing.acquire()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)  # this writes
        finally:
            self.drawing.release()

    @property
    def options(self) -> ConsoleOptions:
        """The options of all that is printed; the height is that of the free rows."""
        options = super().options
        options.max_height = max(1, options.size.height - self.taken)
        options.size = ConsoleDimensions(options.size.width, options.max_height)
        return options

    def show_cursor(self, show: bool = True) -> bool:
        """Change nothing."""
        return False
