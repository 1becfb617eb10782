"""`amplifier trigger simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import click

from ..app import bundle_at, bundle_option, json_option, opened_inbox, plugins_of, run_async
from ..output import print_json, print_table, timestamp
from .timing import declared_in, scheduled_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_core.triggers import Upcoming

    from .timing import Declared

SHOWN = 200
"""Fires of one trigger that are shown."""
COUNTED = 10_000
"""Fires of one trigger that are counted: one of every millisecond has more than anybody waits for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one trigger does within the time: its first fires, and how many more there are."""

    declared: Declared
    fires: list[Upcoming]
    more: int
    counted: bool
    """Whether `more` is all of them, and not only what was counted."""


def _time(ctx: click.Context, option: click.Parameter, text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is no time; write it as 2026-03-28T00:00Z") from None


@click.command()
@bundle_option
@click.option("--days", default=7.0, show_default=True, type=click.FloatRange(0, 3660, min_open=True), help="How long.")
@click.option("--from", "start", metavar="TIME", callback=_time, help="From when on, in UTC unless it says; now.")
@click.option("-n", "--limit", default=SHOWN, show_default=True, type=click.IntRange(min=1), help="Fires per trigger.")
@json_option
@click.pass_context
def simulate(
    ctx: click.Context, bundle_path: str | None, days: float, start: datetime, limit: int, as_json: bool
) -> None:
    """Show when the timers of a bundle will fire, and what changes of the clocks do to them; runs nothing."""
    try:
        end = start + timedelta(days=days)
    except OverflowError:
        raise click.UsageError("the calendar ends before that; choose an earlier --from, or fewer --days") from None
    plans = run_async(_plans(ctx, bundle_path, start, end, limit))
    rows = list(merge(*map(_rows, plans), key=lambda row: row["at"]))
    if as_json:
        more = [_more(plan) for plan in plans if plan.more]
        print_json("trigger.simulate/1", {"from": start, "to": end, "fires": rows, "more": more})
        return
    print_table(
        ("LOCAL", "ZONE", "UTC", "SESSION", "TRIGGER", "NOTE"),
        map(_cells, rows),
        empty="No trigger of the bundle fires at a known time within it.",
    )
    for plan in plans:
        if plan.more:
            count = f"{plan.more:,}" if plan.counted else f"more than {plan.more:,}"
            click.echo(f"… and {count} more of {plan.declared.session}: {plan.declared.name}")


async def _plans(ctx: click.Context, bundle_path: str | None, start: datetime, end: datetime, limit: int) -> list[Plan]:
    from ...paths import project_of

    plugins = plugins_of(ctx)
    bundle = await bundle_at(bundle_path, plugins)
    project, plans = project_of(bundle.base_path), []
    async with opened_inbox(plugins) as store:
        for declared in (each for session in bundle.background_sessions for each in declared_in(bundle, session)):
            source = await scheduled_source(declared, project=project, plugins=plugins, store=store)
            if source is not None:
                plans.append(_plan(declared, source.upcoming(start), end, limit))
    return plans


def _plan(declared: Declared, upcoming: Iterable[Upcoming], end: datetime, limit: int) -> Plan:
    within = takewhile(lambda each: each.at < end, upcoming)
    fires = list(islice(within, limit))
    more = sum(1 for _ in islice(within, COUNTED))
    return Plan(declared, fires, more, more < COUNTED)


def _rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield what is said of each fire; one after a change of the clocks is marked."""
    before = ""
    for fire in plan.fires:
        offset = f"{fire.at:%z}"
        changed = f"clocks were changed from {before} to {offset}" if before not in ("", offset) else ""
        yield {
            "at": fire.at.astimezone(UTC),
            "local": fire.at.isoformat(),
            "zone": getattr(fire.at.tzinfo, "key", None) or str(fire.at.tzinfo),
            "session": plan.declared.session,
            "trigger": plan.declared.name,
            "note": fire.note or changed,
        }
        before = offset


def _more(plan: Plan) -> dict[str, Any]:
    about = {"session": plan.declared.session, "trigger": plan.declared.name}
    return {**about, "count": plan.more, "counted": plan.counted}


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    moment = datetime.fromisoformat(row["local"])
    fraction = f".{moment:%f}" if moment.microsecond else ""
    local = f"{moment:%a %Y-%m-%d %H:%M:%S}{fraction} {moment:%z}"
    return local, row["zone"], timestamp(row["at"]), row["session"], row["trigger"], row["note"]
