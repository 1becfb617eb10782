"""Limit the number of sessions below each other, beside each other and in all, and the time of each.

A bundle's section `spawn` sets `max_depth` (sessions below each other), `max_children` (children of one session at the
same time), `max_sessions` (sessions below the one at the top) and `timeout` (seconds of each). `LIMITS` and `TIMEOUT`
hold for bundles without them. The module `budget` reads `max_cost_usd`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SpawnRefused
from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.hook_data import SpawnRequest

LIMITS = {"max_depth": 5, "max_children": 20, "max_sessions": 500}
TIMEOUT = 1800.0
"""Seconds."""


@hookimpl
async def amplifier_before_spawn(request: SpawnRequest) -> None:
    """Refuse a session beyond a limit."""
    counted = {
        "max_depth": (request.depth, "sessions below each other"),
        "max_children": (request.siblings + 1, "children of one session at the same time"),
        "max_sessions": (request.relatives + 1, "sessions below one"),
    }
    for key, (count, what) in counted.items():
        limit = limit_of(request.limits, key)
        if count > limit:
            raise SpawnRefused(
                request.parent_id,
                f"'{request.bundle}' is not spawned: at most {limit} {what}. "
                f"Another limit is set in the bundle: 'spawn: {{{key}: {count}}}'",
            )


def limit_of(section: Mapping[str, Any], key: str) -> int:
    """Return a limit: the bundle's, or the usual one."""
    value = section.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else LIMITS[key]


def time_limit(section: Mapping[str, Any]) -> float | None:
    """Return the time limit of a spawned session in seconds: the bundle's `timeout` (0: none), else `TIMEOUT`."""
    value = section.get("timeout")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value) or None
    return TIMEOUT
