"""Wait until a path is quiet, but not for ever."""

from __future__ import annotations

from itertools import takewhile

SLACK = 1e-6
"""Seconds of error in sums of floating-point times."""


class Debounce:
    """Changed paths, each due `period` seconds after its last change, or `limit` seconds after its first.

    With `together`, all are due at once: when the last of them has been quiet, or the first has waited for the limit.
    """

    def __init__(self, period: float, limit: float, *, together: bool = False) -> None:
        self._period, self._limit, self._together = period, limit, together
        # Every path waits equally long, so both dictionaries are in the order of their deadlines.
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def note(self, path: str, now: float) -> None:
        """Take a change."""
        self._first.setdefault(path, now)
        self._last.pop(path, None)
        self._last[path] = now

    def take_due(self, now: float) -> list[str]:
        """Return the due paths, and forget them."""
        if self._together:
            due = list(self._first) if self._last and self._deadline() <= now + SLACK else []
        else:
            quiet = takewhile(lambda path: self._last[path] <= now - self._period + SLACK, self._last)
            old = takewhile(lambda path: self._first[path] <= now - self._limit + SLACK, self._first)
            due = list(dict.fromkeys((*quiet, *old)))
        for path in due:
            del self._first[path], self._last[path]
        return due

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the next path is due; None without any path."""
        return self._deadline() - now if self._last else None

    def _deadline(self) -> float:
        last = self._last.values()
        quiet = next(reversed(last) if self._together else iter(last))
        return min(quiet + self._period, next(iter(self._first.values())) + self._limit)
