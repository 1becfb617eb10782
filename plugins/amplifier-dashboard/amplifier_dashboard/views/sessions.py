"""List sessions, the last changed first, by status, project and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlencode

from amplifier_core.storage import Status
from amplifier_foundation.operations.session_search import stored_statuses
from amplifier_foundation.sessions.costs import spent_of
from amplifier_foundation.sessions.presence import WAITING, status_of
from amplifier_foundation.sessions.runs import is_run
from amplifier_foundation.sessions.store_views import views_of

from ..pages import Act, Page, View
from ..rendering import render_block

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "sessions.html"
SHOWN = 50
"""Sessions on a page."""
STATUSES = (*get_args(Status), WAITING)


async def sessions(desk: Desk, place: Place) -> Page:
    """Return a page of sessions; the filters are in the URL."""
    asked = {name: place.query.get(name, "").strip() for name in ("status", "project", "q")}
    chosen = {name: value for name, value in asked.items() if value}
    before = place.query.get("before") or None
    found = await read_page(desk, chosen, before, SHOWN + 1)
    older = urlencode({**chosen, "before": found[SHOWN - 1].session_id}) if len(found) > SHOWN else ""
    values = {
        "rows": [describe_row(each) for each in found[:SHOWN]],
        "older": older,
        "newest": urlencode(chosen) if before else None,
        "is_filtered": bool(chosen),
    }
    facts = {"chosen": asked, "statuses": STATUSES, "projects": await find_projects(desk)}
    return Page("Sessions", TEMPLATE, {"rows": render_block(TEMPLATE, "rows", values)}, facts=facts)


async def read_page(desk: Desk, chosen: dict[str, str], before: str | None, limit: int) -> list[SessionRecord]:
    """Return sessions of a status, a project and with words, the last changed first; those after `before`."""
    wanted = {each for each in STATUSES if each == chosen.get("status")}
    where: dict[str, Any] = {"project": chosen.get("project"), "text": chosen.get("q", "")}
    where["statuses"] = stored_statuses(wanted)
    size = limit
    while True:
        page = await views_of(desk.store).session_page(**where, before=before, limit=size)
        found = [each for each in page if not wanted or status_of(each) in wanted]
        if len(page) < size or len(found) >= limit:
            return found[:limit]
        size *= 4


async def find_projects(desk: Desk) -> list[str]:
    """Return the folders with background sessions, and that of the page."""
    found = {each.project for each in await desk.store.delivery_counts() if each.project.startswith("/")}
    return sorted({*found, desk.project})


def describe_row(record: SessionRecord) -> dict[str, Any]:
    """Return a session as a table shows it."""
    return {"record": record, "status": status_of(record), "spent": str(spent_of(record)), "is_run": is_run(record)}


VIEWS = [View("/sessions", sessions, label="Sessions", key="s")]
ACTS: list[Act] = []
