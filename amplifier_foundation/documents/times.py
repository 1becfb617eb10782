"""Write times as text, and read them."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime | None = None) -> str:
    """Return a time (default: now) as RFC 3339 in UTC, to the second: `2026-01-31T07:00:00Z`."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: str) -> datetime:
    """Return the time of a date or a time as ISO 8601, in UTC unless it says another zone. Raises `ValueError`."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None
