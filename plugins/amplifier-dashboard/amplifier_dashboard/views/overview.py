"""Show all background sessions, the problems first, and what happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from amplifier_core.text_search import fold_text
from amplifier_foundation.operations.overview import read_overview
from amplifier_foundation.sessions.accounts import queue_account
from amplifier_foundation.sessions.store_views import views_of
from amplifier_foundation.sessions.usage import Usage

from ..charts import sparkline
from ..links import background_key
from ..observing import read_processes, read_spending, today
from ..outcomes import read_outcome
from ..pages import Act, Page, View
from ..rendering import render_block
from ..states import RANK
from ..steps import make_feed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from amplifier_core.store_views import DeliveryRate
    from amplifier_foundation.operations.columns import Row

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "overview.html"
RECENT = 50
"""Steps shown at first."""
SHOWN = 50
"""Background sessions on a page."""
HOURS, STEP = 24, 1800.0
"""Hours of a sparkline, and seconds of one of its bars."""
PROBLEMS = ("failed", "degraded", "unknown")
STATES = ("problem", "running", "paused", "stopped", "not running")
"""Choices of the filter."""


async def overview(desk: Desk, place: Place) -> Page:
    """Return the background sessions with their counts and last outcomes, and the last steps."""
    found = await read_overview(desk.store, await read_processes(desk), everything=True)
    spending = await read_spending(desk)
    spent = spending.by(lambda key: key.account if key.day == today() else None)
    rows = sorted((each for each in found.background_sessions if is_chosen(each, place)), key=_rank)
    first = place.number("from", 0)
    shown = rows[first : first + SHOWN]
    lines = await read_sparklines(desk, place.query.get("project") or None)
    for row in shown:
        row["key"] = background_key(row["project"], row["queue"])
        row["outcome"] = await read_outcome(desk, row)
        row["spent"] = spent.get(queue_account(row["project"], row["queue"]))
        row["line"] = lines.get((row["project"], row["queue"])) or _draw([], row["queue"])
    values = {
        "overview": found,
        "rows": shown,
        "first": first,
        "count": len(rows),
        "more": place.with_query({"from": str(first + SHOWN)}) if len(rows) > first + SHOWN else "",
        "fewer": place.with_query({"from": str(max(0, first - SHOWN))}) if first else "",
        "everything": found.background_sessions,
        "spent": sum(spent.values(), Usage()),
        "is_complete": spending.is_complete,
    }
    parts = {name: render_block(TEMPLATE, name, values) for name in ("totals", "queues", "processes")}
    projects = sorted({row["project"] for row in found.background_sessions})
    facts = {"projects": projects, "states": STATES, "query": place.query}
    return Page(
        "Overview", TEMPLATE, parts, {"events": make_feed(desk, RECENT, place.query.get("project", ""))}, facts=facts
    )


def is_chosen(row: Row, place: Place) -> bool:
    """Return whether the query asks for a background session."""
    state, text = place.query.get("state", ""), fold_text(place.query.get("text", ""))
    states = {"": row["state"], "problem": row["state"] if is_problem(row) else ""}.get(state, state)
    words = fold_text(f"{row['queue']} {row['project']} {row['reason']}")
    return row["state"] == states and place.query.get("project") in (None, "", row["project"]) and text in words


def is_problem(row: Row) -> bool:
    """Return whether a person has to look at a background session."""
    return row["state"] in PROBLEMS or bool(row["dead"] or row["approvals"])


def _rank(row: Row) -> tuple[bool, int, str, str]:
    return not is_problem(row), RANK.get(row["state"], 0), row["project"], row["queue"]


async def read_sparklines(desk: Desk, project: str | None = None) -> Mapping[tuple[str, str], Markup]:
    """Return the rates of the last day, drawn for each queue."""
    end = datetime.now(UTC).timestamp() // STEP * STEP + STEP
    since = datetime.fromtimestamp(end, UTC) - timedelta(hours=HOURS)
    rates: dict[tuple[str, str], list[DeliveryRate]] = {}
    for each in await views_of(desk.store).delivery_rates(since=since, step=STEP, project=project):
        rates.setdefault((each.project, each.queue), []).append(each)
    return {key: _draw([(each, since) for each in of_queue], key[1]) for key, of_queue in rates.items()}


def _draw(rates: Sequence[tuple[DeliveryRate, datetime]], queue: str) -> Markup:
    good, bad = ([0] * int(HOURS * 3600 / STEP) for _ in range(2))
    for each, since in rates:
        at = int((each.at - since).total_seconds() // STEP)
        if 0 <= at < len(good):
            (bad if each.state == "dead" else good)[at] += each.count
    failed = f", {sum(bad):,} given up" if any(bad) else ""
    return sparkline(good, bad, f"{queue}: {sum(good) + sum(bad):,} events in {HOURS} hours{failed}")


VIEWS = [View("/", overview, label="Overview", key="o")]
ACTS: list[Act] = []
