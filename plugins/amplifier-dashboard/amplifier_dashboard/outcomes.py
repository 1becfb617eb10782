"""Read how the last delivery of each background session ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amplifier_foundation.operations.history import read_history
from amplifier_foundation.sessions.store_views import views_of

from .links import find_stored

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_core.storage import Delivery, DeliveryState
    from amplifier_foundation.operations.columns import Row

    from .desk import Desk

FINISHED: tuple[DeliveryState, ...] = ("done", "dead")


class Outcome(NamedTuple):
    """The end of a delivery; `text` is the first line of the answer, or the reason."""

    state: str
    text: str
    at: datetime
    delivery_id: str
    session_id: str | None
    """None: no session was made."""


async def read_outcome(desk: Desk, row: Row) -> Outcome | None:
    """Return the last outcome of a background session; it is read anew when its counts have changed."""
    known: dict[tuple[str, str], tuple[object, Outcome | None]] = desk.kept.setdefault("outcomes", {})
    key, counts = (row["project"], row["queue"]), (row["done"], row["dead"], row["last_event"])
    if key not in known or known[key][0] != counts:
        last = await _find_last(desk, row)
        known[key] = counts, await _describe(desk, last) if last is not None else None
    return known[key][1]


async def _find_last(desk: Desk, row: Row) -> Delivery | None:
    views, place = views_of(desk.store), {"project": row["project"], "queue": row["queue"]}
    states = [state for state in FINISHED if row[state]]
    found = [each for state in states for each in await views.delivery_page(**place, states=[state], limit=1)]
    return max(found, key=lambda each: each.updated, default=None)


async def _describe(desk: Desk, delivery: Delivery) -> Outcome:
    steps = await read_history(desk.store, delivery)
    session_id = delivery.session_id if await find_stored(desk.store, [delivery.session_id]) else None
    return Outcome(delivery.state, steps[-1].text, delivery.updated, delivery.delivery_id, session_id)
