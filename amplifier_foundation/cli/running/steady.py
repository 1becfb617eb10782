"""Show a turn that goes on although its output cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .terminal import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from .showing import View


class SteadyView:
    """Shows a turn as another view does, and remembers what went wrong instead of raising it.

    A disk may be full for seconds: the rest is shown when there is room. A reader that has ended does not come back:
    `stop` is called once.
    """

    def __init__(self, view: View) -> None:
        self.stop: Callable[[], None] = lambda: None
        self.is_read = True
        """Whether the output has a reader, as far as is known."""
        self.problem: OSError | None = None
        """Why a part of the output is missing that has a reader."""
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
        except OSError as error:
            if self.problem is None:
                self.problem = error
                tell(f"amplifier: the output cannot be written ({error.strerror}); the turn goes on", fg="yellow")
