"""Show a turn that goes on although its output cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .showing import View


class SteadyView:
    """Shows a turn as another view does, whatever goes wrong.

    A disk may be full for seconds: the rest is shown when there is room, and the end of the program tells the loss.
    A reader that has ended does not come back: `stop` is called once.
    """

    def __init__(self, view: View) -> None:
        self.stop: Callable[[], None] = lambda: None
        self.is_read = True
        """Whether the output has a reader, as far as is known."""
        self._view = view

    def begin(self, session_id: str) -> None:
        """Show the session of the turn."""
        self._try(self._view.begin, session_id)

    def __call__(self, fact: dict[str, Any]) -> None:
        """Show one fact."""
        self._try(self._view, fact)

    def end(self, result: dict[str, Any]) -> None:
        """Show the result."""
        self._try(self._view.end, result)

    def pause(self) -> None:
        """Leave the terminal to others."""
        self._try(self._view.pause)

    def _try(self, show: Callable[..., None], *given: Any) -> None:
        try:
            show(*given)
        except BrokenPipeError:
            if self.is_read:
                self.is_read = False
                self.stop()
        except OSError:  # the end of the program tells it
            pass
