"""Offer a tool to fetch pages of the web as text, within limits, and never from this machine or its network."""

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
    from .config import WebConfig

    return WebConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `web_fetch`. Raises `ValueError`, with the key, for a configuration that cannot work."""
    from .tool import WebFetchTool

    if config:
        check_config(config)
    tool = WebFetchTool(coordinator, config or {})
    await coordinator.mount("tools", tool, name=tool.name)
