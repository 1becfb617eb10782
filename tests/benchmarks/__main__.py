"""Run the benchmarks, or those that are named: `python -m tests.benchmarks hooks files`."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from .table import HEADINGS, cells, line

if TYPE_CHECKING:
    from collections.abc import Sequence

AREAS = (
    "hooks",
    "sessions",
    "durable",
    "hosts",
    "files",
    "timers",
    "startup",
    "peers",
    "stores",
    "jsonl",
    "bundles",
    "router",
    "spawning",
    "background",
    "permissions",
    "streams",
    "tracing",
    "sandbox",
    "isolation",
    "editors",
    "flows",
    "foreman",
    "page",
)


async def _run(area: str) -> int:
    """Print the rows of an area; return how many missed what is allowed."""
    missed = 0
    async for row in import_module(f".{area}", __package__).rows():
        click.echo(line(cells(row)))
        missed += not row.ok
    return missed


@click.command()
@click.argument("areas", nargs=-1, type=click.Choice(AREAS))
def main(areas: Sequence[str]) -> None:
    """Measure AREAS (default: all) and print a table; ends with 1 when a row misses what is allowed."""
    click.echo(line(HEADINGS))
    missed = sum(asyncio.run(_run(area)) for area in areas or AREAS)
    if missed:
        click.echo(f"{missed} missed what is allowed.", err=True)
        sys.exit(1)


main(prog_name="python -m tests.benchmarks")
