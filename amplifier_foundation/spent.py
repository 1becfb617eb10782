"""What a stored session took, as the metadata of its record tells it: its own turns and the sessions below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .usage import Usage

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord

USAGE, DURATION = "usage", "duration"
"""The members of the metadata: a `Usage` as `to_dict` writes it, and the seconds that its turns lasted."""


class Spent(NamedTuple):
    """What a session took; None is what nobody says."""

    usage: Usage | None = None
    duration: float | None = None

    def __str__(self) -> str:
        told = ["" if self.duration is None else lasted(self.duration), dollars(self.usage) if self.usage else ""]
        return ", ".join(each for each in told if each)


def spent_of(record: SessionRecord) -> Spent:
    """Return what a session took, as far as its record says; what cannot be is left out."""
    return _told(record.metadata)


def with_spent(metadata: Mapping[str, Any], usage: Usage, seconds: float) -> dict[str, Any]:
    """Return the metadata of a record that tells this on top of what it told before."""
    before = _told(metadata)
    total = (before.usage or Usage()) + usage
    return {**metadata, USAGE: total.to_dict(), DURATION: round((before.duration or 0.0) + seconds, 3)}


def _told(metadata: Mapping[str, Any]) -> Spent:
    usage, duration = metadata.get(USAGE), metadata.get(DURATION)
    known = isinstance(duration, int | float) and not isinstance(duration, bool) and duration >= 0
    return Spent(Usage.from_dict(usage) if isinstance(usage, Mapping) and usage else None, duration if known else None)


def lasted(seconds: float) -> str:
    """Return a time span as a person reads it: `0.04 s`, `4.2 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if round(seconds, 1) < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def dollars(usage: Usage) -> str:
    """Return a cost as a person reads it: `$0`, `$0.0042`, `$1.50`; `≥ $1.50` where some requests do not say.

    '' when none does.
    """
    cost = usage.cost_usd
    if cost is None:
        return ""
    shown = "$0" if not cost else f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}"
    return f"≥ {shown}" if usage.cost_is_partial else shown
