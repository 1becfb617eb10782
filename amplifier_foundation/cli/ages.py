"""Read the ages of options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from ..documents.times import read_time


def read_age(ctx: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """Return the age of an option, such as 90s, 1h30m or 7d, or by a date. Raises `click.BadParameter`."""
    if text is None:
        return None
    from ..background.retention import LONGEST, age

    try:
        return age(text)
    except ValueError as error:
        reason = str(error)
    now = datetime.now(UTC)
    try:
        since = now - read_time(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{reason}, or a date such as {now:%Y-%m-%d}") from None
    if since < timedelta(0):
        raise click.BadParameter(f"{text} is in the future; a time without a zone is in UTC")
    return min(since, timedelta(seconds=LONGEST))
