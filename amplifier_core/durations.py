"""Read durations as people write them: seconds, or text such as `15m`, `1h30m`, `500ms`, `90 min`, `1 day`."""

from __future__ import annotations

import re
from typing import Any

SECONDS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_UNITS = "ms|s(?:ecs?|econds?)?|m(?:ins?|inutes?)?|h(?:rs?|ours?)?|d(?:ays?)?|w(?:eeks?)?"
PATTERN = rf"^(?:\d+(?:\.\d+)? ?(?:{_UNITS}) ?)+$"
LONGEST = 36_525 * SECONDS["d"]
"""Seconds of a hundred years: a time so far from now is still a valid one."""
_TOO_LONG = 1e300
"""Seconds; a larger number may overflow, and so may one below zero."""
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|[wdhms])", re.ASCII)


def seconds_of(value: Any) -> float:
    """Return a duration in seconds. Raises `ValueError` for anything else, and for a duration below zero."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(min(max(value, -1), _TOO_LONG))
    elif isinstance(value, str) and re.fullmatch(PATTERN, value.strip(), re.ASCII):
        seconds = sum(float(number) * SECONDS[unit] for number, unit in _PART.findall(value))
    else:
        raise ValueError(f"{value!r} is not a duration; give seconds, or text such as '15m', '1h30m' or '500ms'")
    if not 0 <= seconds < _TOO_LONG:
        raise ValueError(f"{value!r} is not a duration; it must be zero or more, and finite")
    return seconds
