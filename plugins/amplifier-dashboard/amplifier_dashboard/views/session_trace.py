"""Show where the time and the cost of one session went: a chart, and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen
from amplifier_core.utils.secrets import redact_text
from amplifier_foundation.sessions.costs import format_cost, format_duration
from amplifier_foundation.sessions.trace import trace_session

from ..pages import Act, Page, View
from ..rendering import render_block
from .session import find_record, render_state, title_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_foundation.sessions.trace import Span

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "trace.html"
MESSAGES = 2_000
"""The last messages that are traced."""
BARS = 200
"""The last steps in the chart."""
WIDTH, ROW, LEFT = 900, 18, 260
"""Pixels of the chart, of one step, and before the bars."""


@frozen
class Bar:
    """One step in the chart; lengths in pixels."""

    span: Span
    label: str
    x: float
    width: float
    y: int
    told: str


async def trace(desk: Desk, place: Place) -> Page:
    """Return the trace of a session's last messages."""
    record = await find_record(desk, place)
    first = record.fork_at or 0
    start = max(first, record.message_count - MESSAGES)
    own = await desk.store.read(record.session_id, start)
    made = [each for each in await desk.store.sessions(parent_id=record.session_id, limit=BARS) if not each.fork_of]
    found = trace_session(record, own, made, start=start)
    bars = _draw_bars(found.spans[-BARS:])
    rest = found.rest()
    values: dict[str, Any] = {
        "record": record,
        "sums": [each.to_dict() for each in found.sums()],
        "rest": None if rest is None else format_duration(rest),
        "notes": found.notes(),
        "bars": bars,
        "height": ROW * (len(bars) + 1),
        "width": WIDTH,
        "left": LEFT,
        "start": start if start > first else 0,
        "lasted": format_duration,
    }
    parts = {"state": render_state(desk, record), "trace": render_block(TEMPLATE, "trace", values)}
    return Page(title_of(record), TEMPLATE, parts, facts={"record": record, "tab": "trace"})


def _draw_bars(spans: Sequence[Span]) -> list[Bar]:
    timed = [each for each in spans if each.start is not None and each.seconds is not None]
    begin = min((each.start or 0.0 for each in timed), default=0.0)
    end = max(((each.start or 0.0) + (each.seconds or 0.0) for each in timed), default=begin)
    scale = (WIDTH - LEFT - 160) / max(end - begin, 0.001)
    return [
        Bar(
            each,
            redact_text(each.name if each.kind == "turn" else f"{each.kind} {each.name}")[:36],
            LEFT + ((each.start or begin) - begin) * scale,
            max(2.0, (each.seconds or 0.0) * scale),
            ROW * row,
            ", ".join(
                filter(
                    None,
                    [
                        "no time" if each.seconds is None else format_duration(each.seconds),
                        format_cost(each.usage) if each.usage else "",
                    ],
                )
            ),
        )
        for row, each in enumerate(spans)
    ]


VIEWS = [View("/sessions/{session_id}/trace", trace)]
ACTS: list[Act] = []
