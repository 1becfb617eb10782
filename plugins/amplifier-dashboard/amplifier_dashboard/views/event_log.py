"""Show the log of events as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from amplifier_core.utils.secrets import redact_all
from amplifier_foundation.documents.json_text import dump_json

from ..links import find_stored
from ..pages import Act, Entry, Feed, Page, View
from ..rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.events import SessionEvent

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "log.html"
RECENT = 50
"""Events shown at first."""
LONGEST = 300
"""Characters of an event's data in its line."""


async def show_log(desk: Desk, place: Place) -> Page:
    """Return the last events that sessions, background sessions and people have emitted."""

    async def since(number: int) -> Sequence[Entry]:
        events = await _read_since(desk, number or max(0, await desk.store.last_sequence() - RECENT))
        left_out = [Entry(each.sequence or 0, Markup()) for each in events[:-RECENT]]  # the browser keeps the last ones
        shown = events[-RECENT:]
        stored = await find_stored(desk.store, [each.source_session_id for each in shown])
        return [*left_out, *(_show(each, stored) for each in shown)]

    return Page("Log of events", TEMPLATE, {}, {"events": Feed(since, keep=RECENT)})


async def _read_since(desk: Desk, number: int) -> list[SessionEvent]:
    found: list[SessionEvent] = []
    while page := await desk.store.events(since=number):
        found += page
        number = page[-1].sequence or number
    return found


def _show(event: SessionEvent, stored: set[str]) -> Entry:
    data = dump_json(redact_all(dict(event.data)))[:LONGEST]
    shown = {"event": event, "data": data, "is_stored": event.source_session_id in stored}
    return Entry(event.sequence or 0, render_block(TEMPLATE, "event", shown))


VIEWS = [View("/log", show_log)]
ACTS: list[Act] = []
