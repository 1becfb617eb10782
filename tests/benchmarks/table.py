"""The table that `make bench` prints, line by line as the figures come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measure import Row

_WIDTHS = (78, 9, 13, 9, 7, 9, 9, 0)
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))

HEADINGS = ("WHAT / LIMIT", "OURS", "LIMIT", "RATIO", "SPREAD", "ALLOWED", "EARLIER", "OK?")


def line(cells: Sequence[str]) -> str:
    """Return one line: the first column begins left, figures end right."""
    what, *figures, verdict = cells
    aligned = [figure.rjust(width) for figure, width in zip(figures, _WIDTHS[1:-1], strict=True)]
    return "  ".join((what.ljust(_WIDTHS[0]), *aligned, verdict)).rstrip()


def cells(row: Row, earlier: Row | None = None) -> tuple[str, ...]:
    """Return what the table says of a line, and of the same line in an earlier run."""
    form = power if row.is_exponent else times
    limit = row.note if row.limit is None else quantity(row.limit, row.unit)
    before = earlier.ratio if earlier else None
    verdict = "slower" if earlier and row.verdict != "MISSED" and row.is_slower_than(earlier) else row.verdict
    figures = ["" if each is None else form(each) for each in (row.ratio, row.at_most_ratio, before)]
    ratio, allowed, was = figures
    return (
        row.what,
        quantity(row.ours, row.unit),
        limit,
        ratio,
        _spread(row),
        f"≤ {allowed}" * bool(allowed),
        was,
        verdict,
    )


def times(ratio: float) -> str:
    """Return a ratio as people read it: 1.5x, or 1/200 when it is small."""
    if 0 < ratio < 0.1:
        return f"1/{1 / ratio:,.0f}"
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"


def power(exponent: float) -> str:
    """Return how a cost grows with the size n: n^1.02."""
    return f"n^{exponent:.2f}"


def quantity(value: float, unit: str) -> str:
    """Return a quantity as people read it: seconds in the scale that fits, anything else as it is."""
    if unit != "s":
        return f"{value:,.0f} {unit}".rstrip()
    factor, name = next((scale for scale in _SCALES if abs(value) >= scale[0]), _SCALES[-1])
    return f"{value / factor:.3g} {name}"


def _spread(row: Row) -> str:
    """Return half the way from the tenth to the ninetieth percentile."""
    if len(row.values) < 2 or not row.ratio:
        return ""
    low, high = row.spread
    return f"± {(high - low) / 2:.2f}" if row.is_exponent else f"± {(high - low) / 2 / row.ratio:.0%}"
