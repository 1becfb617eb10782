"""Run the benchmarks, or the areas that are named: `python -m tests.benchmarks hooks files`."""

from __future__ import annotations

import asyncio
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .record import RELEASE, read_record, write_record
from .table import HEADINGS, cells, line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from .measure import Row
    from .record import Record

AREAS = (
    "hooks",
    "sessions",
    "durable",
    "hosts",
    "files",
    "timers",
    "growth_triggers",
    "startup",
    "felt",
    "peers",
    "stores",
    "growth_store",
    "jsonl",
    "bundles",
    "router",
    "spawning",
    "growth_sessions",
    "background",
    "permissions",
    "streams",
    "tracing",
    "sandbox",
    "isolation",
    "editors",
    "flows",
    "foreman",
    "reading",
    "page",
)
TRIES = 3
"""How often a part is measured that a noisy minute did not decide."""


async def measure(part: Callable[[], AsyncIterator[Row]]) -> list[Row]:
    """Return the lines of a part; it is measured again, and all that was measured is pooled, until each is decided.

    A line that misses is decided when it has missed twice.
    """
    lines: dict[str, Row] = {}
    missed_before = False
    for _ in range(TRIES):
        async for found in part():
            known = lines.get(found.what)
            lines[found.what] = known.pooled(found) if known else found
        verdicts = {each.verdict for each in lines.values()}
        if "undecided" not in verdicts and ("MISSED" not in verdicts or missed_before):
            break
        missed_before = "MISSED" in verdicts
    return list(lines.values())


def measure_area(area: str) -> Iterable[Row | str]:
    """Measure the parts of an area, one after the other: its `PARTS`, or its `rows`.

    A part that fails ends no other: its name stands in place of its lines, and its traceback goes to stderr.
    """
    module = import_module(f".{area}", __package__)
    for part in getattr(module, "PARTS", None) or (module.rows,):
        try:
            yield from asyncio.run(measure(part))
        except Exception:
            traceback.print_exc()
            yield part.__name__


@click.command()
@click.argument("areas", nargs=-1, type=click.Choice(AREAS))
@click.option("--json", "written", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here too.")
@click.option(
    "--against",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare with these records instead of the last release's.",
)
def main(areas: Sequence[str], written: Path | None, against: Sequence[Path]) -> None:
    """Measure AREAS (default: all) and print a table; ends with 1 when a row misses what is allowed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it, and so its programs
    earlier = read_record(*(against or RELEASE))
    record: Record = {}
    failed: list[str] = []
    click.echo(line(HEADINGS))
    for area in areas or AREAS:
        for each in measure_area(area):
            if isinstance(each, str):
                failed.append(f"{area}: {each}")
                continue
            record[f"{area}: {each.what}"] = each
            click.echo(line(cells(each, earlier.get(f"{area}: {each.what}"))))
    if written is not None:
        write_record(written, record)
    sys.exit(_summary(record, earlier, failed))


def _summary(record: Record, earlier: Record, failed: Sequence[str]) -> int:
    """Name what failed, missed, stayed undecided or got slower; return the exit code."""
    missed = [name for name, each in record.items() if each.verdict == "MISSED"]
    undecided = [name for name, each in record.items() if each.verdict == "undecided"]
    slower = [name for name, each in record.items() if name in earlier and each.is_slower_than(earlier[name])]
    for what, names in (
        ("could not be measured", failed),
        ("missed what is allowed", missed),
        (f"could not be decided in {TRIES} tries", undecided),
        ("slower than in the last release", slower),
    ):
        if names:
            click.echo("\n".join((f"{len(names)} {what}:", *(f"  {name}" for name in names))), err=True)
    return bool(failed or missed or slower)


if __name__ == "__main__":
    main(prog_name="python -m tests.benchmarks")
