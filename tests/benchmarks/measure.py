"""Time two or more things turn by turn, so that a noisy machine disturbs all of them alike, and judge what came out."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Sample: TypeAlias = "Callable[[], Awaitable[float]]"
"""Does the work a few times, and returns the seconds that one time took."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; times are seconds.

    `at_most` bounds `ours` itself, `at_most_ratio` bounds it in measures of `limit`; a row without either only informs.
    Where the limit could not be measured, `note` says why, and its ratio is not judged.
    """

    what: str
    ours: float
    limit: float | None = None
    at_most: float | None = None
    at_most_ratio: float | None = None
    unit: str = "s"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the limit ours takes."""
        return self.ours / self.limit if self.limit else None

    @property
    def is_judged(self) -> bool:
        """Whether there is something that it can miss."""
        return self.at_most is not None or (self.at_most_ratio is not None and self.ratio is not None)

    @property
    def ok(self) -> bool:
        """Whether it is within all that is allowed."""
        within_time = self.at_most is None or self.ours <= self.at_most
        return within_time and (self.at_most_ratio is None or self.ratio is None or self.ratio <= self.at_most_ratio)


YARDSTICK = 0.001
"""Seconds of the yardstick on the machine that the limits in seconds were set for."""
_RECORDS = [{"id": f"session-{n}", "created": n, "config": {"tools": ["x" * 20] * 3, "n": n / 7}} for n in range(420)]


def timed(what: str, seconds: float, at_most: float) -> Row:
    """Return a row that has no peer, judged by the speed of this machine now: a fixed round trip through JSON.

    `at_most` is in seconds where that takes `YARDSTICK`.
    """
    taken = []
    for _ in range(15):
        start = perf_counter()
        json.loads(json.dumps(_RECORDS))
        taken.append(perf_counter() - start)
    return Row(f"{what} / a round trip through JSON", seconds, median(taken), at_most_ratio=at_most / YARDSTICK)


async def in_turns(*samples: Sample, rounds: int) -> list[float]:
    """Take a sample of each, `rounds` times over, and return the median of each; an earlier round only warms up."""
    pairs: list[tuple[Sample, list[float]]] = [(sample, []) for sample in samples]
    for sample, _ in pairs:
        await sample()
    for _ in range(rounds):
        pairs.reverse()  # who follows whom makes a difference, so everybody does
        for sample, taken in pairs:
            gc.collect()  # what one leaves behind is not the next one's to clear away
            taken.append(await sample())
    return [median(taken) for _, taken in (pairs if rounds % 2 == 0 else reversed(pairs))]


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
