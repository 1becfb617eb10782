"""Offer a tool to give a task to another agent, in a session of its own, and to return its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import DelegateConfig

    return DelegateConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `delegate`, and announce its events.

    Each call looks up the session's capability `session.spawn`. Raises `ValueError`, with the key, for a configuration
    that cannot work.
    """
    from .config import read_config
    from .reporting import EVENTS
    from .tool import DelegateTool

    tool = DelegateTool(coordinator, read_config(config or {}))
    coordinator.register_contributor("observability.events", "tool-delegate", lambda: list(EVENTS))
    await coordinator.mount("tools", tool, name=tool.name)
