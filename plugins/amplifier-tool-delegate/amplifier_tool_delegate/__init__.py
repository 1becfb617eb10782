"""A tool that gives a task to another agent, in a session of its own, and returns its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` naming the key of a configuration that cannot work."""
    from .config import read_config

    read_config(config)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `delegate`, and announce its events.

    What runs the agents is the session's capability `session.spawn`, looked up at each call. Raises `ValueError` naming
    the key of a configuration that cannot work.
    """
    from .config import read_config
    from .telling import EVENTS
    from .tool import DelegateTool

    tool = DelegateTool(coordinator, read_config(config or {}))
    coordinator.register_contributor("observability.events", "tool-delegate", lambda: list(EVENTS))
    await coordinator.mount("tools", tool, name=tool.name)
