"""Read the numbers of options."""

from __future__ import annotations

from math import isnan
from typing import Any

import click


class NumberRange(click.FloatRange):
    """A number within bounds. NaN is none: every comparison with a bound lets it pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raises `click.BadParameter`."""
        number = float(super().convert(value, param, ctx))
        if isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number
