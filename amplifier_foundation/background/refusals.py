"""Count refused events, and report them once a minute: a flood is one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from amplifier_core.frozen import frozen, slotted

if TYPE_CHECKING:
    from amplifier_core.clock import Clock
    from amplifier_core.triggers import TriggerEvent

PERIOD = 60.0
"""Seconds between two reports, at the least."""
REASONS = 5
"""Reasons named in a report, the most frequent ones."""


@frozen
class Report:
    """The refusals since the last report."""

    count: int
    reasons: dict[str, int]
    last: TriggerEvent

    @property
    def text(self) -> str:
        """The reasons in one line."""
        if self.count == 1:
            return next(iter(self.reasons))
        named = [f"{reason} ({number})" for reason, number in self.reasons.items()]
        return f"{self.count} events refused: {'; '.join(named)}"


@slotted
class Refusals:
    """The refusals of one background session: the first is reported at once, later ones together."""

    clock: Clock
    total: int = 0
    _unreported: Counter[str] = field(default_factory=Counter)
    _last: TriggerEvent | None = None
    _reported_at: float = float("-inf")

    def note(self, event: TriggerEvent, reason: str) -> None:
        """Count one."""
        self.total += 1
        self._unreported[reason] += 1
        self._last = event

    @property
    def waits(self) -> bool:
        """Whether some are not reported yet."""
        return self._last is not None

    def report(self, *, now: bool = False) -> Report | None:
        """Return the next report if it is due, or `now`; None: there is nothing to report."""
        moment = self.clock.monotonic()
        if self._last is None or (moment - self._reported_at < PERIOD and not now):
            return None
        report = Report(self._unreported.total(), dict(self._unreported.most_common(REASONS)), self._last)
        self._unreported, self._last, self._reported_at = Counter(), None, moment
        return report
