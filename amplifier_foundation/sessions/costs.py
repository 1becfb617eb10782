"""Read and write the usage and the duration of a stored session in the metadata of its record.

Both are of all its turns, with the sessions below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .usage import Usage

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord

USAGE, DURATION = "usage", "duration"
"""The members of the metadata: a `Usage` as `to_dict` writes it, and the duration of the turns in seconds."""


class Spent(NamedTuple):
    """The usage and the duration (seconds) of a session; None is unknown."""

    usage: Usage | None = None
    duration: float | None = None

    def __str__(self) -> str:
        duration = "" if self.duration is None else format_duration(self.duration)
        return ", ".join(filter(None, [duration, format_cost(self.usage) if self.usage else ""]))


def spent_of(record: SessionRecord) -> Spent:
    """Return the usage and the duration of a session; an impossible value is unknown."""
    return read_spent(record.metadata)


def with_spent(metadata: Mapping[str, Any], usage: Usage, seconds: float) -> dict[str, Any]:
    """Return the metadata of a record with a usage and a duration added to its own."""
    before = read_spent(metadata)
    total = (before.usage or Usage()) + usage
    return {**metadata, USAGE: total.to_dict(), DURATION: round((before.duration or 0.0) + seconds, 3)}


def read_spent(metadata: Mapping[str, Any]) -> Spent:
    """Return the usage and the duration in the metadata of a record."""
    usage, duration = metadata.get(USAGE), metadata.get(DURATION)
    known = isinstance(duration, int | float) and not isinstance(duration, bool) and duration >= 0
    return Spent(Usage.from_dict(usage) if isinstance(usage, Mapping) and usage else None, duration if known else None)


def format_duration(seconds: float) -> str:
    """Return a duration as people read it: `0.04 s`, `4.2 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if round(seconds, 1) < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_cost(usage: Usage) -> str:
    """Return a cost as people read it: `$0`, `$0.0042`, `$1.50`.

    With unknown costs it is `≥ $1.50`; without any known cost, ''.
    """
    cost = usage.cost_usd
    if cost is None:
        return ""
    shown = "$0" if not cost else f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}"
    return f"≥ {shown}" if usage.cost_is_partial else shown
