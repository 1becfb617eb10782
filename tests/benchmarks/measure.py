"""Time two or more things turn by turn, so that a noisy machine disturbs all of them alike, and judge what came out."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from math import floor, log, sqrt
from statistics import linear_regression, median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

Sample: TypeAlias = "Callable[[], Awaitable[float]]"
"""Does the work a few times, and returns the seconds that one time took."""
Verdict: TypeAlias = Literal["ok", "MISSED", "undecided", ""]
"""`undecided`: what is allowed lies within the uncertainty of the median. Empty: nothing is allowed or forbidden."""

FLAT, LINEAR = 0.1, 1.1
"""The exponents that are allowed where a cost should stay the same, and where it should grow with the work."""
SETTLED, SETTLED_EXPONENT = 0.1, 0.05
"""Two runs of the same program differ by so much, a ratio by its share: a row did not change by less."""


class Figure(float):
    """The median of some rounds. `rounds` is what each of them gave, in their order."""

    __slots__ = ("rounds",)
    rounds: tuple[float, ...]

    def __new__(cls, rounds: Iterable[float]) -> Figure:
        kept = tuple(rounds)
        figure = super().__new__(cls, median(kept))
        figure.rounds = kept
        return figure

    def __sub__(self, other: float) -> Figure:
        """Return what the rounds of this one take beyond those of the other, never less than nothing."""
        return Figure(max(0.0, ours - theirs) for ours, theirs in paired(self, other))

    def __truediv__(self, other: float) -> Figure:
        return Figure(ours / theirs for ours, theirs in paired(self, other))


def paired(ours: float, theirs: float) -> list[tuple[float, float]]:
    """Return the two figures round by round; where their rounds do not belong together, beside the median."""
    first = _rounds(ours)
    second = _rounds(theirs)
    if len(first) == len(second):
        return list(zip(first, second, strict=True))
    if len(first) == 1:
        return [(float(ours), each) for each in second]
    return [(each, float(theirs)) for each in first]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; times are seconds.

    `ours` in measures of `limit`, round by round, is what is judged: the median of `values` may be `at_most_ratio`.
    A row without either only informs. Where the limit could not be measured, `note` says why.
    """

    what: str
    ours: float
    limit: float | None = None
    at_most_ratio: float | None = None
    unit: str = "s"
    note: str = ""
    values: tuple[float, ...] = ()
    is_exponent: bool = False
    """Whether the values are exponents of a `curve`."""

    def __post_init__(self) -> None:
        if not self.values and self.limit:
            ratios = tuple(mine / theirs for mine, theirs in paired(self.ours, self.limit))
            object.__setattr__(self, "values", ratios)

    @property
    def ratio(self) -> float | None:
        """How many times the limit ours takes, or the exponent: the median of the values."""
        return median(self.values) if self.values else None

    @property
    def spread(self) -> tuple[float, float]:
        """The tenth and the ninetieth percentile of the values."""
        return _percentile(self.values, 0.1), _percentile(self.values, 0.9)

    @property
    def verdict(self) -> Verdict:
        """Whether the median is within what is allowed, by its 95 % confidence interval."""
        if self.at_most_ratio is None or not self.values:
            return ""
        low, high = _interval(self.values)
        if low <= self.at_most_ratio < high:
            return "undecided"
        return "ok" if high <= self.at_most_ratio else "MISSED"

    def is_slower_than(self, earlier: Row) -> bool:
        """Whether the spreads of the two do not overlap, and this one costs more by more than what is settled.

        A row that only informs is not compared: it may tell of a peer, or the share of a step in a whole.
        """
        if self.at_most_ratio is None or self.ratio is None or earlier.ratio is None:
            return False
        (low, _), (_, high) = self.spread, earlier.spread
        settled = SETTLED_EXPONENT if self.is_exponent else SETTLED * earlier.ratio
        return low > high and self.ratio > earlier.ratio + settled

    def pooled(self, other: Row) -> Row:
        """Return both measurements as one."""
        rounds = (*_rounds(self.ours), *_rounds(other.ours))
        return replace(other, values=self.values + other.values, ours=Figure(rounds))


def curve(what: str, points: Sequence[tuple[int, float]], at_most: float = FLAT, unit: str = "s") -> Row:
    """Return a line that is judged by an exponent: the slope of the cost over the size, both as logarithms.

    `points` are sizes and what they cost, of four sizes that were measured turn by turn.
    """
    sizes = [log(size) for size, _ in points]
    rounds = zip(*(_rounds(cost) for _, cost in points), strict=True)
    slopes = tuple(linear_regression(sizes, [log(max(cost, 1e-12)) for cost in costs]).slope for costs in rounds)
    sizes_read = " → ".join(f"{size:,}" for size, _ in (points[0], points[-1]))
    (_, least), (_, most) = points[0], points[-1]
    return Row(f"{what}, {sizes_read}", most, least, at_most, unit, values=slopes, is_exponent=True)


async def in_turns(*samples: Sample, rounds: int) -> list[Figure]:
    """Take a sample of each, `rounds` times over, and return a figure for each; an earlier round only warms up."""
    pairs: list[tuple[Sample, list[float]]] = [(sample, []) for sample in samples]
    for sample, _ in pairs:
        await sample()
    for _ in range(rounds):
        pairs.reverse()  # who follows whom makes a difference, so everybody does
        for sample, taken in pairs:
            gc.collect()  # what one leaves behind is not the next one's to clear away
            taken.append(await sample())
    return [Figure(taken) for _, taken in (pairs if rounds % 2 == 0 else reversed(pairs))]


def awaited(work: Callable[[], Awaitable[Any]], calls: int) -> Sample:
    """Return a sample of an async function."""

    async def sample() -> float:
        start = perf_counter()
        for _ in range(calls):
            await work()
        return (perf_counter() - start) / calls

    return sample


def called(work: Callable[[], Any], calls: int) -> Sample:
    """Return a sample of a plain function."""

    async def sample() -> float:
        start = perf_counter()
        for _ in range(calls):
            work()
        return (perf_counter() - start) / calls

    return sample


def _rounds(figure: float) -> tuple[float, ...]:
    return getattr(figure, "rounds", (figure,))


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the order statistics between which the median lies with 95 %; of fewer than six values, all of them."""
    ordered = sorted(values)
    outside = max(0, floor((len(ordered) - 1.96 * sqrt(len(ordered))) / 2))
    return ordered[outside], ordered[-1 - outside]
