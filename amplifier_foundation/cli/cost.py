"""Run `amplifier cost`: sum the stored usage by bundle, model, day and session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..operations.spending import KEYS, sum_usage
from .app import json_option, read_sessions, storage_plugins, use_store
from .loops import run_reading
from .output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..sessions.usage import Usage


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
@json_option
@click.pass_context
@run_reading
async def cost(ctx: click.Context, keys: list[str], everywhere: bool, as_json: bool) -> None:
    """Show the tokens and the cost of the stored sessions.

    Each request counts once, with the session that made it. Days are UTC. A cost with ≥ leaves out requests of unknown
    price; '?' is unknown. Deleted sessions are not counted.
    """
    from ..sessions.uncounted import count_all

    async with use_store(storage_plugins(ctx)) as store:
        rows = sum_usage(await count_all(store, await read_sessions(store, everywhere=everywhere)), keys)
    if as_json:
        listed = [{**dict(zip(keys, values, strict=True)), **usage.to_dict()} for values, usage in rows]
        print_json("cost/1", {"by": keys, "rows": listed, "total": _total(rows).to_dict()})
        return
    headings = (*(key.upper() for key in keys), "REQUESTS", "TOKENS IN", "TOKENS OUT", "COST")
    lines = [(*values, *_cells(usage)) for values, usage in rows]
    if len(lines) > 1:
        lines.append(("TOTAL", *[""] * (len(keys) - 1), *_cells(_total(rows))))
    empty = "No usage yet." if everywhere else "No usage in this folder. All: --all"
    print_table(
        headings, lines, empty=empty, leave_out=("REQUESTS", "TOKENS IN", "TOKENS OUT", "DAY", "BUNDLE", "MODEL")
    )


def _total(rows: Iterable[tuple[tuple[str, ...], Usage]]) -> Usage:
    from ..sessions.usage import Usage

    return sum((usage for _, usage in rows), Usage())


def _cells(usage: Usage) -> tuple[str, str, str, str]:
    from ..sessions.costs import format_cost

    tokens = f"{usage.input_tokens:,}", f"{usage.output_tokens:,}"
    return f"{usage.requests:,}", *tokens, format_cost(usage) or "?"
