"""Run `amplifier cost`: sum the stored usage by bundle, model, day and session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..operations.spending import KEYS, sum_stored
from .app import json_option, projects_here, storage_plugins, use_store
from .loops import run_reading
from .output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..sessions.usage import Usage


SHOWN = 50
"""Rows of a table of sessions, unless a number is given."""


def _read_keys(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",")]
    for key in keys:
        if key not in KEYS:
            raise click.BadParameter(f"'{key}' is none of {', '.join(KEYS)}")
    return list(dict.fromkeys(keys))


@click.command(epilog="Example: amplifier cost --by model,day")
@click.option(
    "--by",
    "keys",
    default="model",
    show_default=True,
    callback=_read_keys,
    metavar="KEYS",
    help=f"What to group by, in this order: {', '.join(KEYS)}.",
)
@click.option("--all", "everywhere", is_flag=True, help="Include the sessions of all folders.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10**9),
    help=f"Show at most so many rows, those with the highest cost.  [default: {SHOWN} by session, else all]",
)
@json_option
@click.pass_context
@run_reading
async def cost(ctx: click.Context, keys: list[str], everywhere: bool, limit: int | None, as_json: bool) -> None:
    """Show the tokens and the cost of the stored sessions.

    Each request counts once, with the session that made it. Days are UTC. A cost with ≥ leaves out requests of unknown
    price; '?' is unknown. Deleted sessions are not counted.
    """
    async with use_store(storage_plugins(ctx)) as store:
        rows = await sum_stored(store, None if everywhere else projects_here(), keys)
    if as_json:
        listed = [{**dict(zip(keys, values, strict=True)), **usage.to_dict()} for values, usage in rows]
        print_json("cost/1", {"by": keys, "rows": listed, "total": _total(rows).to_dict()})
        return
    headings = (*(key.upper() for key in keys), "REQUESTS", "TOKENS IN", "TOKENS OUT", "COST")
    limit = limit or (SHOWN if "session" in keys else len(rows))
    shown = sorted(sorted(rows, key=_by_cost, reverse=True)[:limit])
    lines = [(*values, *_cells(usage)) for values, usage in shown]
    if len(rows) > limit:
        told = f"{limit:,} of {len(rows):,} rows are shown, those with the highest cost. More: -n {10 * limit}"
        click.echo(told, err=True)
    if len(rows) > 1:
        lines.append(("TOTAL", *[""] * (len(keys) - 1), *_cells(_total(rows))))
    empty = "No usage yet." if everywhere else "No usage in this folder. All: --all"
    print_table(
        headings, lines, empty=empty, leave_out=("REQUESTS", "TOKENS IN", "TOKENS OUT", "DAY", "BUNDLE", "MODEL")
    )


def _total(rows: Iterable[tuple[tuple[str, ...], Usage]]) -> Usage:
    from ..sessions.usage import Usage

    return sum((usage for _, usage in rows), Usage())


def _by_cost(row: tuple[tuple[str, ...], Usage]) -> tuple[float, int]:
    """Return what is more for a row with a higher cost, or with more tokens where costs are the same, or unknown."""
    _, usage = row
    return float(usage.cost_usd or 0), usage.input_tokens + usage.output_tokens


def _cells(usage: Usage) -> tuple[str, str, str, str]:
    from ..sessions.costs import format_cost

    tokens = f"{usage.input_tokens:,}", f"{usage.output_tokens:,}"
    return f"{usage.requests:,}", *tokens, format_cost(usage) or "?"
