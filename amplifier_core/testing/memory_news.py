"""Tell listeners of the writes of a store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class MemoryNews:
    """Call functions after every write, in the thread of the writer."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}

    def watch_commits(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` after every write."""
        mark = object()
        self._listeners[mark] = told
        return lambda: self._listeners.pop(mark, None) and None

    def _tell(self) -> None:
        for told in list(self._listeners.values()):
            told()
