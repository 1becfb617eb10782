"""Keep the ledger of a session: its own usage by day and model, its turns and its seconds, without the sessions below.

The ledger is a member of the record's metadata:

    {"2026-11-22": {"turns": 2, "seconds": 3.5, "models": {"anthropic/large": {"input_tokens": 10, …}}}}

Days are UTC. A fork begins with an empty ledger, and with that of its source as `BEFORE_FORK`: budgets count both,
costs count each once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.clock import SystemClock
from amplifier_core.frozen import frozen

from .usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from amplifier_core.clock import Clock

    from .usage import UsageMeter

LEDGER, BEFORE_FORK, TREE_BEFORE_FORK = "ledger", "ledger_before_fork", "tree_ledger_before_fork"
"""The members of the metadata: the session's own ledger, and at a fork that of its source, alone and with its tree."""


@frozen
class Spending:
    """The amounts that a budget limits; added with `+`."""

    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    seconds: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.usage + other.usage, self.turns + other.turns, self.seconds + other.seconds)


class Entry(NamedTuple):
    """The usage of one model on one day (`YYYY-MM-DD`)."""

    day: str
    model: str
    usage: Usage


class Ledger:
    """The usage, turns and seconds of a session by day."""

    def __init__(self) -> None:
        self._usage: dict[tuple[str, str], Usage] = {}
        self._turns: dict[str, int] = {}
        self._seconds: dict[str, float] = {}

    @classmethod
    def of(cls, metadata: Mapping[str, Any], member: str = LEDGER) -> Ledger:
        """Return the ledger in the metadata of a record, empty without one; impossible values are left out."""
        ledger, days = cls(), metadata.get(member)
        for day, row in days.items() if days and isinstance(days, Mapping) else ():
            if not isinstance(row, Mapping):
                continue
            ledger.add_time(str(day), turns=_amount(row.get("turns"), int), seconds=_amount(row.get("seconds"), float))
            models = row.get("models")
            for model, usage in (models if isinstance(models, Mapping) else {}).items():
                if isinstance(usage, Mapping):
                    ledger.add_usage(str(day), str(model), Usage.from_dict(usage))
        return ledger

    def add_usage(self, day: str, model: str, usage: Usage) -> None:
        """Add the usage of requests to a model."""
        known = self._usage.get((day, model))
        self._usage[day, model] = usage if known is None else known + usage

    def add_time(self, day: str, *, turns: int = 0, seconds: float = 0.0) -> None:
        """Add turns and seconds."""
        self._turns[day] = self._turns.get(day, 0) + turns
        self._seconds[day] = self._seconds.get(day, 0.0) + seconds

    def add(self, other: Ledger) -> None:
        """Add everything of another ledger."""
        for entry in other.entries():
            self.add_usage(*entry)
        for day in other._turns:
            self.add_time(day, turns=other._turns[day], seconds=other._seconds[day])

    def take_away(self, other: Ledger) -> None:
        """Take away what was added with another ledger; what it did not know of costs stays unknown."""
        for day, model, usage in other.entries():
            self._usage[day, model] = self._usage[day, model].since(usage)
        for day in other._turns:
            self.add_time(day, turns=-other._turns[day], seconds=-other._seconds[day])

    def ends_before(self, day: str) -> bool:
        """Return whether it has nothing of a day or of a later one."""
        return not any(each >= day for each in (*self._turns, *(of for of, _ in self._usage)))

    def drop_seconds(self) -> None:
        """Forget the seconds."""
        self._seconds = dict.fromkeys(self._turns, 0.0)

    def copy(self) -> Ledger:
        """Return a ledger with the same content."""
        made = Ledger()
        made.add(self)
        return made

    def entries(self) -> Iterator[Entry]:
        """Yield the usage by day and model."""
        for (day, model), usage in self._usage.items():
            yield Entry(day, model, usage)

    def sum(self, day: str | None = None) -> Spending:
        """Return everything of one day, or of all days."""
        usage = sum((each.usage for each in self.entries() if day in (None, each.day)), Usage())
        turns = sum(count for of, count in self._turns.items() if day in (None, of))
        return Spending(usage, turns, sum(count for of, count in self._seconds.items() if day in (None, of)))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it; `of` reads it."""
        rows: dict[str, Any] = {
            day: {"turns": self._turns.get(day, 0), "seconds": round(self._seconds.get(day, 0.0), 3), "models": {}}
            for day in sorted({*self._turns, *(day for day, _ in self._usage)})
        }
        for day, model, usage in self.entries():
            rows[day]["models"][model] = usage.to_dict()
        return rows


def _amount(value: Any, kind: type[Any]) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    return kind(value) if is_number else kind(0)


def day_of(moment: datetime) -> str:
    """Return the day of an aware time in UTC: `2026-11-22`."""
    return moment.astimezone(UTC).date().isoformat()


class OpenLedger:
    """The ledger of an open session: that of its record, and the counts of its meter since.

    A turn counts from its first request on: `count_turn`. A turn without a request counts at its end, unless it was
    denied.
    """

    def __init__(self, metadata: Mapping[str, Any], meter: UsageMeter, clock: Clock | None = None) -> None:
        self.inherited = Ledger.of(metadata, BEFORE_FORK)
        self.tree_inherited = Ledger.of(metadata, TREE_BEFORE_FORK)
        self.is_denied = False
        self._before = Ledger.of(metadata)
        self._meter = meter
        self._clock = clock or SystemClock()
        self._began: float | None = None
        self._is_uncounted = False

    def begin_turn(self, *, is_new: bool) -> None:
        """Begin a turn; one that continues an interrupted turn counts none."""
        self._began, self._is_uncounted, self.is_denied = self._clock.monotonic(), is_new, False

    @property
    def begins_turn(self) -> bool:
        """Whether the turn has not been counted yet."""
        return self._is_uncounted

    def count_turn(self) -> None:
        """Count the turn, if it has not been counted yet."""
        if self._is_uncounted:
            self._is_uncounted = False
            self._before.add_time(day_of(self._clock.now()), turns=1)

    def end_turn(self) -> None:
        """Add the seconds of the turn, and the turn itself unless its first request was denied."""
        if not self.is_denied:
            self.count_turn()
        self._before.add_time(day_of(self._clock.now()), seconds=self._elapsed())
        self._began, self._is_uncounted = None, False

    async def read(self) -> Ledger:
        """Return the ledger so far."""
        ledger = self._before.copy()
        for (day, model), usage in (await self._meter.own_by_model()).items():
            ledger.add_usage(day, model, usage)
        if self._began is not None:
            ledger.add_time(day_of(self._clock.now()), seconds=self._elapsed())
        return ledger

    def _elapsed(self) -> float:
        return 0.0 if self._began is None else max(0.0, self._clock.monotonic() - self._began)
