"""Read the ages that options take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from datetime import timedelta


def read_age(ctx: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """Return the age that an option gives, such as 90s, 30m, 12h or 7d. Raises `click.BadParameter`."""
    if text is None:
        return None
    from ..background.retention import age

    try:
        return age(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
