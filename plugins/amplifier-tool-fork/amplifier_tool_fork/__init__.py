"""Offer a tool by which a session tries something in forks of itself, side by side, and keeps the best one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__all__ = ["mount"]

__amplifier_module_type__ = "tool"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import ForkConfig

    return ForkConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `fork`.

    Each call looks up the session's capability `session.spawn`. Raises `ValueError`, with the key, for a configuration
    that cannot work.
    """
    from .tool import ForkTool

    options: dict[str, Any] = {}
    if config:
        from .config import read_config

        options = read_config(config).model_dump()
    tool = ForkTool(coordinator, **options)
    await coordinator.mount("tools", tool, name=tool.name)
