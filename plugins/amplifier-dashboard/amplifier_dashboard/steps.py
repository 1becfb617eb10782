"""Follow what background sessions do, step by step, for all pages that show it: the lines of `amplifier logs`."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.frozen import slotted
from amplifier_foundation.cli.view import MARKS
from amplifier_foundation.operations.history import Following

from .links import find_stored
from .pages import Entry, Feed
from .rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_foundation.operations.history import HistoryEntry

    from .desk import Desk

RECENT = 60
"""The newest deliveries, searched for new steps."""
KEPT = 500
PLAIN = ("◦", "dim")
"""The mark of a kind without one."""
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_COLOURS = {
    "dim": "soft",
    "blue": "accent",
    "magenta": "accent",
    "yellow": "wait",
    "cyan": "busy",
    "green": "good",
    "red": "bad",
}


class Step(NamedTuple):
    """One step of a delivery or a background session.

    `number` grows from step to step; it is the time in microseconds, so that it grows over restarts of the server too.
    """

    number: int
    entry: HistoryEntry

    @property
    def session_id(self) -> str | None:
        """The session of its delivery, or of what a person did."""
        delivery, act = self.entry.delivery, self.entry.act or {}
        return delivery.session_id if delivery is not None else act.get("session_id")

    @property
    def sign(self) -> str:
        """The sign of its kind."""
        return MARKS.get(self.entry.kind, PLAIN)[0]

    @property
    def colour(self) -> str:
        """The class of its kind."""
        return _COLOURS[MARKS.get(self.entry.kind, PLAIN)[1]]


@slotted
class _Steps:
    following: Following
    seen: int = -1
    last: deque[Step] = field(default_factory=lambda: deque(maxlen=KEPT))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


async def read_steps(desk: Desk, queue: tuple[str, str] | None = None) -> list[Step]:
    """Return the last steps of one background session (its project and queue), or of all, in their order."""
    all_kept: dict[tuple[str, str] | None, _Steps] = desk.kept.setdefault("steps", {})
    kept = all_kept.setdefault(queue, _Steps(Following(desk.store, [queue] if queue is not None else None)))
    async with kept.lock:
        if kept.seen != desk.changes.count:
            kept.seen = desk.changes.count
            for entry in await kept.following.read_new(RECENT):
                before = kept.last[-1].number if kept.last else 0
                kept.last.append(Step(max(before + 1, (entry.at - _BEGIN) // timedelta(microseconds=1)), entry))
        return list(kept.last)


def make_feed(desk: Desk, shown: int, project: str = "", queue: tuple[str, str] | None = None) -> Feed:
    """Return a feed of steps, the last `shown` ones at first; of one project, one background session, or of all."""

    async def since(number: int) -> Sequence[Entry]:
        steps = [each for each in await read_steps(desk, queue) if project in ("", each.entry.project)]
        fresh = [each for each in steps if each.number > number] if number else steps[-shown:]
        stored = await find_stored(desk.store, [each.session_id for each in fresh])
        made = [(each.number, {"step": each, "stored": stored}) for each in fresh]
        return [Entry(number, render_block("steps.html", "step", values)) for number, values in made]

    return Feed(since, keep=4 * shown)
