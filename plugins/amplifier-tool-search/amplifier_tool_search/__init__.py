"""Offer a tool to search the files of a project, with ripgrep where it is installed."""

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
    from .config import SearchConfig

    return SearchConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `search`. Raises `ValueError`, with the key, for a configuration that cannot work."""
    from .tool import SearchTool

    if config:
        check_config(config)
    tool = SearchTool(coordinator, config or {})
    await coordinator.mount("tools", tool, name=tool.name)
