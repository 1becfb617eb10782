"""Waiting until a path is quiet, but not for ever."""

from __future__ import annotations

SLACK = 1e-6
"""Seconds that sums of floating-point times may be off."""


class Debounce:
    """Paths that changed, each due `period` seconds after its last change, or `limit` after its first.

    Every path waits equally long, so that both dictionaries are in the order of their deadlines. `together`, all are
    due at once: when the last of them has been quiet, or the first has waited for the limit.
    """

    def __init__(self, period: float, limit: float, *, together: bool = False) -> None:
        self._period, self._limit, self._together = period, limit, together
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def note(self, path: str, now: float) -> None:
        """Take a change."""
        self._first.setdefault(path, now)
        self._last.pop(path, None)
        self._last[path] = now

    def due(self, now: float) -> list[str]:
        """Return the paths that are due, and forget them."""
        if self._together:
            due_now = bool(self._last) and self._deadline() <= now + SLACK
            return self._forget(list(self._first)) if due_now else []
        due = dict.fromkeys(_until(self._last, now - self._period) + _until(self._first, now - self._limit))
        return self._forget(list(due))

    def wait(self, now: float) -> float | None:
        """Return the seconds until the next path is due; None when there is none."""
        if not self._last:
            return None
        return self._deadline() - now

    def _deadline(self) -> float:
        last = self._last.values()
        quiet = next(reversed(last) if self._together else iter(last))
        return min(quiet + self._period, next(iter(self._first.values())) + self._limit)

    def _forget(self, due: list[str]) -> list[str]:
        for path in due:
            del self._first[path], self._last[path]
        return due


def _until(times: dict[str, float], end: float) -> list[str]:
    found = []
    for path, time in times.items():
        if time > end + SLACK:
            break
        found.append(path)
    return found
