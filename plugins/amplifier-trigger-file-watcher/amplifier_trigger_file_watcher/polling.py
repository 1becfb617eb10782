"""Look again and again, on file systems without events."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .fingerprints import Facts


class Poller:
    """Compares each look of `read_facts` with the one before."""

    def __init__(self, read_facts: Callable[[], dict[str, Facts]]) -> None:
        self._read_facts = read_facts
        self._last: dict[str, Facts] = {}

    def look(self) -> list[str]:
        """Return the paths with other facts than at the last look."""
        before, self._last = self._last, self._read_facts()
        gone = before.keys() - self._last.keys()
        return [*gone, *(path for path, facts in self._last.items() if before.get(path) != facts)]
