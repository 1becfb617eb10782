"""What clocks on the wall do when they are changed, after PEP 495."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def shift_at(wall: datetime) -> timedelta:
    """Return zero for an aware time that exists once; above zero, it is left out; below, it comes twice."""
    return offset_of(wall.replace(fold=1)) - offset_of(wall.replace(fold=0))


def end_of_gap(wall: datetime) -> datetime:
    """Return the instant, to the second and in UTC, at which clocks leave out `wall`."""
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
