"""Tell how a zone's clock changes at a time on the wall, after PEP 495."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def shift_at(wall: datetime) -> timedelta:
    """Return by how much clocks change at an aware time: zero if it exists once.

    Above zero, the clock leaves the time out; below zero, it shows it twice.
    """
    return offset_of(wall.replace(fold=1)) - offset_of(wall.replace(fold=0))


def end_of_gap(wall: datetime) -> datetime:
    """Return the instant at which the clock skips `wall`; in UTC, to the second."""
    low, high = wall.replace(fold=1).astimezone(UTC), wall.replace(fold=0).astimezone(UTC)
    before = offset_of(low.astimezone(wall.tzinfo))
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if offset_of(middle.astimezone(wall.tzinfo)) == before:
            low = middle
        else:
            high = middle
    return high


def offset_of(moment: datetime) -> timedelta:
    """Return how far a moment's clock is ahead of UTC."""
    return moment.utcoffset() or timedelta()
