"""Offer a list of tasks to an agent; the history of its session keeps the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` for any key: there is nothing to configure."""
    if config:
        raise ValueError(f"tool-todo: {next(iter(config))}: unknown key; the tool has no configuration")


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    return {"type": "object", "properties": {}, "additionalProperties": False}


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Mount `todo`, and offer the list to other modules as `coordinator.todo_state`.

    A turn begins with the list of the history, so a fork and a resumed session go on with it. Returns a function to
    stop that. Raises `ValueError` for a configuration.
    """
    from .tool import TodoTool

    check_config(config or {})
    tool = TodoTool(coordinator)
    await coordinator.mount("tools", tool, name=tool.name)
    return coordinator.hooks.register("prompt:submit", tool.restore, priority=-100, name="tool-todo")
