"""The table that `make bench` prints, line by line as the figures come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measure import Row

_WIDTHS = (64, 9, 13, 8, 17, 0)
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))

HEADINGS = ("WHAT / LIMIT", "OURS", "LIMIT", "RATIO", "ALLOWED", "OK?")


def line(cells: Sequence[str]) -> str:
    """Return one line: the first column begins left, figures end right."""
    what, *figures, verdict = cells
    aligned = [figure.rjust(width) for figure, width in zip(figures, _WIDTHS[1:-1], strict=True)]
    return "  ".join((what.ljust(_WIDTHS[0]), *aligned, verdict)).rstrip()


def cells(row: Row) -> tuple[str, ...]:
    """Return what the table says of a row."""
    verdict = ("ok" if row.ok else "MISSED") if row.is_judged else ""
    limit = row.note if row.limit is None else quantity(row.limit, row.unit)
    ratio = "" if row.ratio is None else times(row.ratio, ".2f")
    return row.what, quantity(row.ours, row.unit), limit, ratio, _allowed(row), verdict


def times(ratio: float, form: str = "g") -> str:
    """Return a ratio as people read it: 1.5x, or 1/200 when it is small."""
    return f"1/{1 / ratio:,.0f}" if 0 < ratio < 0.1 else f"{ratio:{form}}x"


def quantity(value: float, unit: str) -> str:
    """Return a quantity as people read it: seconds in the scale that fits, anything else as it is."""
    if unit != "s":
        return f"{value:,.0f} {unit}".rstrip()
    factor, name = next((scale for scale in _SCALES if abs(value) >= scale[0]), _SCALES[-1])
    return f"{value / factor:.3g} {name}"


def _allowed(row: Row) -> str:
    bounds = []
    if row.at_most is not None:
        bounds.append(f"≤ {quantity(row.at_most, row.unit)}")
    if row.at_most_ratio is not None:
        bounds.append(f"≤ {times(row.at_most_ratio)}")
    return ", ".join(bounds)
