"""Know the names of the program's own events in the log: no model emits them in its place."""

from __future__ import annotations

from .events import ALL_EVENTS

_PREFIXES = ("session:", "trigger:", "background:")
_NAMES = frozenset(
    {
        *ALL_EVENTS,
        *("operator:acted", "router:overflow", "transport:lost", "transport:set_aside"),
        *("flow:run:cancelled", "flow:run:completed", "flow:run:failed"),
        *("flow:task:completed", "flow:task:failed", "flow:task:skipped"),
        *("issue:closed", "issue:created", "issue:unblocked", "issue:updated"),
    }
)
"""Names beside these, such as `issue:triaged`, are free."""


def is_own_event(name: str) -> bool:
    """Return whether the program itself emits events with this name, such as the end of a session."""
    return name.startswith(_PREFIXES) or name in _NAMES
