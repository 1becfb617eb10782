"""Know the names of the program's own events in the log: no model emits them in its place."""

from __future__ import annotations

from .events import ALL_EVENTS

_PREFIXES = ("session:", "trigger:", "background:", "flow:run:", "flow:task:", "router:", "transport:")
_NAMES = frozenset(
    {
        *ALL_EVENTS,
        "operator:acted",
        *("issue:closed", "issue:created", "issue:unblocked", "issue:updated"),
    }
)
"""Names beside these, such as `issue:triaged`, are free."""


def is_own_event(name: str) -> bool:
    """Return whether the program itself emits events with this name, such as the end of a session."""
    return name.startswith(_PREFIXES) or name in _NAMES
