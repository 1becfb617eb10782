"""Show the dead letters by their causes, and retry or drop them: one, chosen ones, or all of a cause."""

from __future__ import annotations

import re
from dataclasses import field
from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.errors import DeliveryNotFound
from amplifier_core.frozen import slotted
from amplifier_foundation.operations.deliveries import find_uncertain
from amplifier_foundation.sessions.lineage import describe_event
from amplifier_foundation.sessions.store_views import views_of

from ..pages import Act, Badge, Page, Reply, View
from ..rendering import render_block
from .deliveries import drop_all, find_delivery, retry_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.storage import Delivery

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "dead.html"
MOST = 2_000
"""The newest dead letters, read and grouped."""
SHOWN = 50
LONGEST = 200
"""Characters of a cause."""
PICK = "pick-"
"""What the name of a check box begins with; the id of a delivery follows."""
_CHANGING = re.compile(r"[0-9a-f]{8,}|\d+")


@slotted
class Cause:
    """Dead letters with the same first line of their reason; numbers and ids in it may differ."""

    key: str
    text: str
    deliveries: list[Delivery] = field(default_factory=list)


async def dead_letters(desk: Desk, place: Place) -> Page:
    """Return the dead letters of the chosen background session and cause, the newest first."""
    causes = await _find_causes(desk, place.query)
    chosen = causes.get(place.query.get("cause", ""))
    found = (
        chosen.deliveries if chosen is not None else [each for cause in causes.values() for each in cause.deliveries]
    )
    found = sorted(found, key=lambda each: each.created, reverse=True)
    first = place.number("from", 0)
    shown = found[first : first + SHOWN]
    values = {
        "causes": list(causes.values()),
        "chosen": chosen,
        "read_only": desk.read_only,
        "count": len(found),
        "is_bounded": sum(len(each.deliveries) for each in causes.values()) == MOST,
        "most": MOST,
        "rows": [(each, describe_event(each.event), _first_line(each.reason)) for each in shown],
        "uncertain": await find_uncertain(desk.store, shown),
        "first": first,
        "query": {name: place.query.get(name, "") for name in ("project", "queue", "cause")},
        "paths": {key: place.with_query({"cause": key, "from": ""}) for key in (*causes, "")},
        "more": place.with_query({"from": str(first + SHOWN)}) if len(found) > first + SHOWN else "",
        "fewer": place.with_query({"from": str(max(0, first - SHOWN))}) if first else "",
    }
    parts = {name: render_block(TEMPLATE, name, values) for name in ("causes", "letters")}
    return Page("Dead letters", TEMPLATE, parts, facts={"query": values["query"]})


async def _find_causes(desk: Desk, query: Mapping[str, str]) -> dict[str, Cause]:
    """Return the causes of the newest dead letters by their keys, the most frequent first."""
    project, queue = query.get("project") or None, query.get("queue") or None
    causes: dict[str, Cause] = {}
    views = views_of(desk.store)
    for each in await views.delivery_page(project=project, queue=queue, states=["dead"], limit=MOST):
        text = _first_line(each.reason)
        key = sha256(_CHANGING.sub("#", text).encode()).hexdigest()[:12]
        causes.setdefault(key, Cause(key, text)).deliveries.append(each)
    return dict(sorted(causes.items(), key=lambda item: -len(item[1].deliveries)))


def _first_line(reason: str | None) -> str:
    return (reason or "").strip().partition("\n")[0][:LONGEST] or "no reason is stored"


async def change(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Retry or drop the chosen dead letters, or all of a cause: `verb` says what, `cause` whose."""
    if form.get("cause"):
        cause = (await _find_causes(desk, form)).get(form["cause"])
        chosen = cause.deliveries[::-1] if cause is not None else []
    else:
        ids = [name.removeprefix(PICK) for name in form if name.startswith(PICK)]
        chosen = [each for each in [await _find_dead(desk, its_id) for its_id in ids] if each is not None]
    if not chosen:
        return Reply("No dead letter is chosen: tick the boxes of some first.")
    if form.get("verb") == "drop":
        return Reply(await drop_all(desk, chosen, form.get("reason", "")))
    return Reply(await retry_all(desk, chosen))


async def _find_dead(desk: Desk, delivery_id: str) -> Delivery | None:
    """Return a dead letter; None for one that was retried, dropped or purged meanwhile."""
    try:
        delivery = await find_delivery(desk, delivery_id)
    except DeliveryNotFound:
        return None
    return delivery if delivery.state == "dead" else None


async def count_dead(desk: Desk) -> int:
    """Return the number of dead letters."""
    return sum(each.counts.get("dead", 0) for each in await desk.store.delivery_counts())


VIEWS = [View("/dead", dead_letters, label="Dead letters", key="d", badge=Badge(count_dead, "given up"))]
ACTS = [Act("/dead/change", change)]
