"""Tell whether a disk is quick enough for an event loop to wait for its writes, and which writes are short enough.

To hand a write to a thread and to be woken by it takes 100 to 200 µs of two processors: as long as a quick disk takes.
But a disk may stall for seconds, and a loop that waits for it holds up all of its sessions. So one slow write sends the
next ones to a thread, until enough of them in a row were quick again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

QUICK = 0.002
"""Seconds that a quick write takes at most: a person sees no pause, and no time limit is near."""
ENOUGH = 32
"""Quick writes in a row after a slow one, until the loop waits for the next one."""
SHORT, EACH = 64 * 1024, 100
"""Characters and bytes that a short write has, at most, and those that each value counts beside its own."""


def is_short(values: Iterable[object]) -> bool:
    """Return whether the write of these values is short; other values than text and bytes count nothing."""
    return sum(EACH + len(each) for each in values if isinstance(each, str | bytes)) <= SHORT


class DiskPace:
    """The pace of the last writes; a disk is quick until it was slow."""

    def __init__(self) -> None:
        self._missing = 0

    @property
    def is_quick(self) -> bool:
        """Whether to wait for the next write in the event loop."""
        return not self._missing

    def note(self, seconds: float) -> None:
        """Take the time of a write, wherever it was waited for."""
        if seconds > QUICK:
            self._missing = ENOUGH
        elif self._missing:
            self._missing -= 1
