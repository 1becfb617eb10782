"""Register the tracker of issues: background sessions with `tracker: issue` work on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from amplifier_core.hookspecs import Register
    from amplifier_foundation.hookspecs import TrackerFactory

    from .work import IssueTracker


@hookimpl
def amplifier_register_tracker(register: Register[TrackerFactory]) -> None:
    """Register the tracker."""
    register("issue", make_tracker)


def make_tracker(config: Mapping[str, Any]) -> IssueTracker:
    """Return the tracker of one background session."""
    from .work import IssueTracker

    return IssueTracker(config)
