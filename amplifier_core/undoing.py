"""Take back what a module has mounted and registered when its mount fails: a module is there as a whole, or not.

A step belongs to the mount that it is part of, also within tasks of that mount. So a server that an earlier module has
begun, and that lists its tools meanwhile, loses none of them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token
    from types import TracebackType
    from typing import Self


class Undoing:
    """A block that mounts one module; an error within it takes the module's steps back, the last one first."""

    __slots__ = ("_steps", "_token", "touched")

    def __init__(self) -> None:
        self.touched: set[str] = set()
        """Where the module has mounted or registered something: mount points, `capabilities`, `cleanup`, …"""
        self._steps: list[Callable[[], None]] | None = []

    def __enter__(self) -> Self:
        self._token: Token[Undoing | None] = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)
        steps, self._steps = self._steps or [], None  # tasks of the mount may live on
        if error is not None:
            for undo in reversed(steps):
                undo()

    def note(self, place: str, undo: Callable[[], None] | None) -> None:
        """Have `undo` called if the block fails; without effect after its end."""
        if self._steps is None:
            return
        self.touched.add(place)
        if undo is not None:
            self._steps.append(undo)


_current: ContextVar[Undoing | None] = ContextVar("mount", default=None)


def note(place: str, undo: Callable[[], None] | None = None) -> None:
    """Note a step of the mount that this is part of, if of any, and what takes it back."""
    mount = _current.get()
    if mount is not None:
        mount.note(place, undo)
