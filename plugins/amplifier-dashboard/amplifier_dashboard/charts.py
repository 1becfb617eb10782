"""Draw small charts as SVG. Every length is an attribute: the page allows no inline styles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BAR, HIGH = 3, 24
"""Width of a bar of a sparkline with its gap, and the height, in pixels."""
COLOURS = 8
"""Classes `c0` to `c7` of the style sheet, for the parts of stacked bars."""


def sparkline(good: Sequence[int], bad: Sequence[int], label: str) -> Markup:
    """Return bars of two counts above each other, as wide whatever they count; `label` says what they show."""
    most = max([1, *(a + b for a, b in zip(good, bad, strict=True))])
    paths = {"good": "", "bad": ""}
    for at, (fine, failed) in enumerate(zip(good, bad, strict=True)):
        base = float(HIGH)
        for name, count in (("good", fine), ("bad", failed)):
            if count:
                height = max(1.0, round(HIGH * count / most, 1))
                paths[name] += f"M{at * BAR} {base:g}h{BAR - 1}v-{height:g}h-{BAR - 1}z"
                base -= height
    drawn = Markup("").join(Markup('<path class="{}" d="{}"/>').format(name, path) for name, path in paths.items())
    width = BAR * len(good)
    return Markup(
        '<svg class="sparkline" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">'
        '<title>{2}</title><path class="axis" d="M0 {3}h{0}"/>{4}</svg>'
    ).format(width, HIGH, label, HIGH - 0.5, drawn)


class Bar(NamedTuple):
    """A part of a stacked bar, in the units of its chart."""

    x: float
    y: float
    width: float
    height: float
    colour: int
    label: str


def stack(columns: Sequence[Mapping[str, float]], names: Sequence[str], *, width: float, height: float) -> list[Bar]:
    """Return the parts of stacked bars: one bar for each column, its parts in the order of `names` from the ground up.

    The highest bar is as high as the chart.
    """
    most = max([*(sum(column.values()) for column in columns), 0.0]) or 1.0
    step = width / max(1, len(columns))
    bars = []
    for at, column in enumerate(columns):
        base = height
        for number, name in enumerate(names):
            high = height * column.get(name, 0.0) / most
            if high > 0:
                base -= high
                x, wide = round(at * step + step * 0.1, 2), round(step * 0.8, 2)
                bars.append(Bar(x, round(base, 2), wide, round(high, 2), number % COLOURS, name))
    return bars
