"""A tool that emits an event, which wakes the sessions that wait for it."""

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
    """Mount `emit`.

    What emits is the session's capability `event.emit`, looked up at each call. Raises `ValueError` naming the key of a
    configuration that cannot work.
    """
    from .config import read_config
    from .tool import EmitTool

    tool = EmitTool(coordinator, read_config(config or {}))
    await coordinator.mount("tools", tool, name=tool.name)
