"""Draw tables at a terminal: what does not fit wraps, is shortened or left out; no other cell is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click
from rich.table import Table
from rich.text import Text

from .output import STATUS_STYLE, console, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = 2
"""Spaces between columns."""
WRAPPED, SHORTENED = 20, 10
"""Narrowest width of a column that wraps, and of one that is shortened."""


class Fit(NamedTuple):
    """What gives way on a narrow terminal, by headings, as `print_table` takes it."""

    wrap: Sequence[str]
    shrink: Sequence[str]
    leave_out: Sequence[str]


def draw_table(headings: Sequence[str], rows: Sequence[Sequence[str]], fit: Fit) -> None:
    """Print a table, and on stderr the names of the columns left out."""
    out = console()
    natural = {
        heading: max(width_of(line) for cell in (heading, *cells) for line in cell.split("\n"))
        for heading, cells in zip(headings, zip(*rows, strict=True), strict=True)
    }
    widths = fit_columns(natural, fit, out.width)
    drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_edge=False)
    for heading, width in widths.items():
        drawn.add_column(heading, width=width, no_wrap=heading not in fit.wrap, overflow="ellipsis")
    for row in rows:
        cells = [cell for heading, cell in zip(headings, row, strict=True) if heading in widths]
        drawn.add_row(*(Text(cell, style=STATUS_STYLE.get(cell.partition(":")[0], "")) for cell in cells))
    out.width = max(out.width, sum(widths.values()) + GAP * len(widths))
    out.print(drawn)
    if hidden := [heading for heading in headings if heading not in widths]:
        click.echo(f"Left out for want of room: {', '.join(hidden)}", err=True)


def fit_columns(natural: dict[str, int], fit: Fit, room: int) -> dict[str, int]:
    """Return the width of each column that is shown; they fit into `room` columns, gaps included, if they can."""
    narrowest = dict.fromkeys(fit.wrap, WRAPPED) | dict.fromkeys(fit.shrink, SHORTENED)
    least = {
        heading: min(width, max(narrowest.get(heading, width), len(heading))) for heading, width in natural.items()
    }
    for heading in fit.leave_out:
        if _excess(least, room) > 0 and len(least) > 1:
            least.pop(heading, None)
    widths = {heading: natural[heading] for heading in least}
    for heading in (*fit.shrink, *fit.wrap):
        if heading in widths:
            widths[heading] = max(least[heading], widths[heading] - max(0, _excess(widths, room)))
    return widths


def _excess(widths: dict[str, int], room: int) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1) - room
