"""Show all background sessions, and what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pages import Act, Entry, Feed, Page, View
from ..rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "overview.html"
RECENT = 50
"""Events shown at first."""


async def overview(desk: Desk, place: Place) -> Page:
    """Return the background sessions with their counts, and the last events."""
    rows = [
        {"project": each.project, "queue": each.queue, "counts": dict(each.counts), "newest": each.newest}
        for each in await desk.store.delivery_counts()
    ]
    parts = {"queues": render_block(TEMPLATE, "queues", {"rows": rows})}

    async def since(number: int) -> Sequence[Entry]:
        start = number or max(0, await desk.store.last_sequence() - RECENT)
        events = await desk.store.events(since=start)
        return [Entry(each.sequence or 0, render_block(TEMPLATE, "event", {"event": each})) for each in events]

    return Page("Overview", TEMPLATE, parts, {"events": Feed(since, keep=RECENT)})


VIEWS = [View("/", overview, label="Overview", key="o")]
ACTS: list[Act] = []
