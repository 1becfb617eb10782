"""Show what sessions have spent: by day and model, by bundle, and by background session."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from amplifier_foundation.sessions.usage import Usage

from ..charts import COLOURS, stack
from ..links import background_path
from ..observing import read_spending
from ..pages import Act, Page, View
from ..rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..desk import Desk
    from ..observing import Key
    from ..pages import Place

T = TypeVar("T")

TEMPLATE = "cost.html"
DAYS, MOST_DAYS = 14, 92
WIDTH, HEIGHT = 960.0, 200.0
LABELS = 14
"""Most days that are written below the chart."""
OTHER = "other models"


async def show_cost(desk: Desk, place: Place) -> Page:
    """Return the usage of the last days; days are UTC, as in `amplifier cost`."""
    days = min(max(1, place.number("days", DAYS)), MOST_DAYS)
    project = place.query.get("project", "")
    dates = [datetime.now(UTC).date() - timedelta(days=days - 1 - number) for number in range(days)]
    spending = await read_spending(desk)
    wanted = {day.isoformat() for day in dates}
    by_key = spending.by(lambda key: key if key.day in wanted and project in ("", key.project) else None)
    by_day = _sum(by_key, lambda key: (key.day, key.model))
    by_model = _sum(by_key, lambda key: key.model)
    names = sorted(by_model, key=lambda name: -_amount(by_model[name], by_cost=_has_cost(by_model)))
    shown = [*names[: COLOURS - 1], OTHER] if len(names) > COLOURS else names
    values = {
        "by_day": sorted(by_day.items(), reverse=True),
        "by_bundle": sorted(_sum(by_key, lambda key: key.bundle).items()),
        "by_background": sorted(_describe(_sum(by_key, lambda key: key.account)), key=lambda each: each[:2]),
        "total": sum(by_day.values(), Usage()),
        "names": shown,
        "bars": stack(_columns(by_day, dates, shown), shown, width=WIDTH, height=HEIGHT),
        "labels": [
            (round((at + 0.1) * WIDTH / days, 1), f"{dates[at]:%d %b}") for at in range(0, days, -(-days // LABELS))
        ],
        "size": (WIDTH, HEIGHT),
        "by_cost": _has_cost(by_model),
        "is_complete": spending.is_complete,
    }
    parts = {name: render_block(TEMPLATE, name, values) for name in ("chart", "tables")}
    projects = sorted({key.project for key in spending.by(lambda key: key)})
    return Page("Cost", TEMPLATE, parts, facts={"days": days, "project": project, "projects": projects})


def _sum(by_key: Mapping[Key, Usage], part: Callable[[Key], T]) -> dict[T, Usage]:
    sums: dict[T, Usage] = {}
    for key, usage in by_key.items():
        sums[part(key)] = sums.get(part(key), Usage()) + usage
    return sums


def _describe(by_account: Mapping[str, Usage]) -> Iterator[tuple[str, str, str, Usage]]:
    """Yield queue, project and page of each background session with its usage; the sessions of people have none."""
    for account, usage in by_account.items():
        project, _, queue = account.removeprefix("queue:").rpartition(":")
        yield queue, project, background_path(project, queue) if queue else "", usage


def _has_cost(sums: Mapping[str, Usage]) -> bool:
    return any(each.cost_usd is not None for each in sums.values())


def _amount(usage: Usage, *, by_cost: bool) -> float:
    return float(usage.cost_usd or 0) if by_cost else float(usage.input_tokens + usage.output_tokens)


def _columns(
    by_day: Mapping[tuple[str, str], Usage], dates: Sequence[date], names: Sequence[str]
) -> list[dict[str, float]]:
    """Return the amount of each shown model, for each date."""
    by_cost = any(each.cost_usd is not None for each in by_day.values())
    columns: dict[str, dict[str, float]] = {day.isoformat(): {} for day in dates}
    for (day, model), usage in by_day.items():
        name = model if model in names else OTHER
        columns[day][name] = columns[day].get(name, 0.0) + _amount(usage, by_cost=by_cost)
    return list(columns.values())


VIEWS = [View("/cost", show_cost, label="Cost", key="c")]
ACTS: list[Act] = []
