"""Offer a tool to emit events; they wake sessions with a matching trigger."""

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
    from .config import EmitConfig

    return EmitConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `emit`.

    Each call looks up the session's capability `event.emit`. Raises `ValueError`, with the key, for a configuration
    that cannot work.
    """
    from .config import read_config
    from .tool import EmitTool

    tool = EmitTool(coordinator, read_config(config or {}))
    await coordinator.mount("tools", tool, name=tool.name)
