"""Show when the timers of all known bundles will fire, as a calendar."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from amplifier_foundation.background.keys import queue_key
from amplifier_foundation.background.lifecycle import read_wish
from amplifier_foundation.operations.simulating import COUNTED, plan_timers

from ..declarations import load_known, read_known
from ..links import background_path
from ..pages import Act, Page, View
from ..rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from amplifier_foundation.bundle.model import Bundle
    from amplifier_foundation.operations.simulating import Plan

    from ..declarations import Known, Loaded
    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "timers.html"
DAYS, MOST_DAYS = 7, 31
LIMIT = 1_000
"""Fires of one trigger that are read."""
OFTEN = 24
"""Fires a day above which a trigger is listed beside the calendar."""


class Fire(NamedTuple):
    """One fire in the calendar; `local` is its time on this machine."""

    local: datetime
    path: str
    name: str
    note: str


class Often(NamedTuple):
    """A trigger that fires often."""

    path: str
    name: str
    trigger: str
    a_day: str
    next_fire: datetime
    note: str


async def show_timers(desk: Desk, place: Place) -> Page:
    """Return the fires of the next days, by day and hour of this machine's time."""
    days = min(max(1, place.number("days", DAYS)), MOST_DAYS)
    start = _read_start(place.query.get("from", ""))
    fires, often, problems = list[Fire](), list[Often](), list[tuple[str, str]]()
    for known in await read_known(desk):
        loaded = await load_known(desk, known)
        try:
            plans = await _plan(desk, loaded, start, days) if loaded.bundle is not None else []
        except Exception as error:  # in the code of any trigger
            loaded.problem = f"{type(error).__name__}: {error}"
            plans = []
        if loaded.problem:
            problems.append((f"{known.bundle} in {known.project}", loaded.problem))
        for plan in plans:
            await _add(desk, known, plan, start, days, fires, often)
    fires.sort()
    dates = [(start.astimezone() + timedelta(days=number)).date() for number in range(days + 1)]
    values = {
        "dates": dates,
        "hours": _by_hour(fires, dates),
        "agenda": [(day, [each for each in fires if each.local.date() == day]) for day in dates],
        "often": often,
        "problems": problems,
        "zone": start.astimezone().tzname(),
    }
    facts = {"days": days, "start": place.query.get("from", "")}
    return Page("Timers", TEMPLATE, {"timers": render_block(TEMPLATE, "timers", values)}, facts=facts)


def _read_start(day: str) -> datetime:
    """Return the begin of a day (`2026-03-27`) of this machine's time; now for a text that is none."""
    try:
        return datetime.fromisoformat(day).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.now(UTC).replace(second=0, microsecond=0)


async def _plan(desk: Desk, loaded: Loaded, start: datetime, days: int) -> Sequence[Plan]:
    """Return the fires of a bundle; they are found anew when it changes, and every minute."""
    kept: dict[tuple[str, int], tuple[Bundle, datetime, Sequence[Plan]]] = desk.kept.setdefault("timers", {})
    bundle, key = loaded.bundle, (loaded.path, days)
    assert bundle is not None
    if key not in kept or kept[key][0] is not bundle or kept[key][1] != start:
        end = start + timedelta(days=days)
        kept[key] = bundle, start, await plan_timers(bundle, desk.plugins, desk.store, start, end, LIMIT)
        await asyncio.sleep(0)  # a bundle with many timers does not hold up other pages
    return kept[key][2]


async def _add(
    desk: Desk, known: Known, plan: Plan, start: datetime, days: int, fires: list[Fire], often: list[Often]
) -> None:
    """Add the fires of a trigger to the calendar, or the trigger to those that fire often."""
    name = plan.declared.background_session
    queue = queue_key(known.bundle, name)
    rows = [row for row in plan.rows() if row["at"] > start]
    if not rows or await read_wish(desk.store, known.project, queue) == "stopped":
        return
    path, count = background_path(known.project, queue), len(rows) + plan.more
    if count > OFTEN * days:
        a_day = f"about {count / days:,.0f}" if plan.counted else f"more than {(LIMIT + COUNTED) / days:,.0f}"
        notes = "; ".join(f"{row['note']} ({row['local']})" for row in rows if row["note"])
        often.append(Often(path, queue, plan.declared.name, a_day, rows[0]["at"], notes))
    else:
        fires += [Fire(row["at"].astimezone(), path, queue, row["note"]) for row in rows]


def _by_hour(fires: Sequence[Fire], dates: Sequence[date]) -> list[tuple[int, list[list[tuple[Fire, int]]]]]:
    """Return the hours with fires: for each date, the first fire of each in this hour, with their number."""
    cells: dict[tuple[int, date], list[Fire]] = {}
    for each in fires:
        cells.setdefault((each.local.hour, each.local.date()), []).append(each)
    return [
        (hour, [_group(cells.get((hour, day), ())) for day in dates]) for hour in sorted({hour for hour, _ in cells})
    ]


def _group(fires: Sequence[Fire]) -> list[tuple[Fire, int]]:
    counts = Counter(each.name for each in fires if not each.note)
    noted = [(each, 1) for each in fires if each.note]
    first = {each.name: each for each in reversed(fires) if not each.note}
    return sorted([*noted, *((first[name], count) for name, count in counts.items())])


VIEWS = [View("/timers", show_timers, label="Timers", key="t")]
ACTS: list[Act] = []
