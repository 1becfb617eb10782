"""Remember recent events, to fire again for a path with changes since, also when they left it as it was.

The session of the first event may have read the path in between. Without a second event, its last knowledge of the
path would be wrong, though the path is as the event said.

The operating system may tell of a change only when that has fired already. So each event has a barrier, the time of a
moment before it: what is known to have happened earlier is no reason to fire again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from .folder_index import FolderIndex, find_outermost

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT = 16_384
"""Paths in memory, at most."""
FIRST_PAUSE = 1.0
"""Seconds between the first and the second repeat of a path."""


class _Fired(NamedTuple):
    """The last event of a path: its time, the pause until the next repeat may come, and its barrier."""

    at: float
    pause: float
    barrier: float


class Repeats:
    """Paths with an event since the start, and those of them to fire again.

    The pauses between repeats double until the path really differs: a program that writes the same content for ever
    wakes some twenty sessions in a fortnight, and still each path fires after its last change.
    """

    def __init__(self) -> None:
        self._fired: OrderedDict[str, _Fired] = OrderedDict()  # the oldest first; a dict is slow to find that
        self._below = FolderIndex(())
        self._due: dict[str, float] = {}

    def note_event(self, path: str, now: float, barrier: float = 0.0, *, again: bool) -> None:
        """Take an event; `again` for a repeat."""
        before = self._fired.pop(path, None)
        pause = max(FIRST_PAUSE, 2 * before.pause) if again and before else 0.0
        self._fired[path] = _Fired(now, pause, barrier)
        self._below.add(path)
        self._due.pop(path, None)
        if len(self._fired) > KEPT:
            oldest, _ = self._fired.popitem(last=False)
            self._below.discard(oldest)
            self._due.pop(oldest, None)

    def note_activity(self, paths: Iterable[tuple[str, float]], now: float) -> None:
        """Take paths with a change, also if nothing of it is left, each with a time before which it was not."""
        for path, since in paths:
            if (fired := self._fired.get(path)) is not None and since >= fired.barrier:
                self._due.setdefault(path, max(now, fired.at + fired.pause))

    def find_below(self, folders: Iterable[str]) -> set[str]:
        """Return the paths with events below some folders."""
        return {path for folder in find_outermost(folders) for path in self._below.find_below(folder)}

    def take_due(self, now: float) -> list[str]:
        """Return the paths to fire again now, and forget their activity."""
        due = [path for path, time in self._due.items() if time <= now]
        for path in due:
            del self._due[path]
        return due

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the next path is due; None without any."""
        return min(self._due.values()) - now if self._due else None
