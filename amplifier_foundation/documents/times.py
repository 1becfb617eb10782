"""Write times as text."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime | None = None) -> str:
    """Return a time (default: now) as RFC 3339 in UTC, to the second: `2026-01-31T07:00:00Z`."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
