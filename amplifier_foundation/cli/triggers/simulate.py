"""Run `amplifier trigger simulate`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from heapq import merge

import click

from ...documents.times import format_time, read_time
from ...operations.simulating import Plan, plan_timers
from ..app import bundle_option, json_option, load_bundle_at, plugins_of, use_inbox
from ..loops import run_in_loop
from ..numbers import NumberRange
from ..output import plural, print_json, print_table

LEFT_OUT = ("ZONE", "UTC", "TRIGGER", "NOTE", "BACKGROUND SESSION")
"""Columns that a narrow terminal does not get, the least important first."""
SHOWN = 200
"""Fires of one trigger, by default."""
IN_ALL = 2_000
"""Fires of all triggers, by default."""
NAMED = 50
"""Triggers with more fires that are named below the table."""


def _read_time(ctx: click.Context, option: click.Parameter, text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        return read_time(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time; write it as 2026-03-28T00:00Z") from None


@click.command(epilog="Example: amplifier trigger simulate --days 30")
@bundle_option
@click.option("--days", default=7.0, show_default=True, type=NumberRange(0, 3660, min_open=True), help="Days.")
@click.option("--from", "start", metavar="TIME", callback=_read_time, help="Begin then, in UTC unless given. [now]")
@click.option(
    "-n", "--limit", default=SHOWN, show_default=True, type=click.IntRange(1, 10**9), help="Fires per trigger."
)
@click.option(
    "--total", default=IN_ALL, show_default=True, type=click.IntRange(1, 10**9), help="Fires of all triggers."
)
@json_option
@click.pass_context
@run_in_loop
async def simulate(
    ctx: click.Context, bundle_path: str | None, days: float, start: datetime, limit: int, total: int, as_json: bool
) -> None:
    """Show when the timers of a bundle will fire, across clock changes; run nothing."""
    try:
        end = start + timedelta(days=days)
    except OverflowError:
        raise click.UsageError("the calendar ends before that; choose an earlier --from, or fewer --days") from None
    plugins = plugins_of(ctx)
    bundle = await load_bundle_at(bundle_path, plugins)
    async with use_inbox(plugins) as store:
        plans = await plan_timers(bundle, plugins, store, start, end, limit, total)
    if sum(len(plan.fires) for plan in plans) == total and any(plan.more and len(plan.fires) < limit for plan in plans):
        click.echo(f"The first {total:,} fires are shown, and there are more: --total {10 * total}", err=True)
    _print(plans, start, end, to_json=as_json)


def _print(plans: list[Plan], start: datetime, end: datetime, *, to_json: bool) -> None:
    rows, longer = (
        list(merge(*(plan.rows() for plan in plans), key=lambda row: row["at"])),
        [p for p in plans if p.more],
    )
    if to_json:
        more = [
            {
                "background_session": plan.declared.background_session,
                "trigger": plan.declared.name,
                "count": plan.more,
                "counted": plan.counted,
            }
            for plan in longer
        ]
        print_json("trigger.simulate/2", {"from": start, "to": end, "fires": rows, "more": more})
        return
    cells = []
    for row in rows:
        moment = datetime.fromisoformat(row["local"])
        local = f"{moment:%a %Y-%m-%d %H:%M:%S %z}"
        about = row["background_session"], row["trigger"], row["note"]
        cells.append((local, row["zone"], format_time(row["at"]), *about))
    headings = ("LOCAL", "ZONE", "UTC", "BACKGROUND SESSION", "TRIGGER", "NOTE")
    print_table(
        headings, cells, empty="No trigger of the bundle fires at a known time in these days.", leave_out=LEFT_OUT
    )
    for plan in longer[:NAMED]:
        count = f"{plan.more:,}" if plan.counted else f"more than {plan.more:,}"
        click.echo(f"… and {count} more of {plan.declared.background_session}: {plan.declared.name}")
    if len(longer) > NAMED:
        click.echo(f"… and more of {plural(len(longer) - NAMED, 'other trigger')}")
