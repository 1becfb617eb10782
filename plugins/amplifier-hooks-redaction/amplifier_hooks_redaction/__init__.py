"""Hide secrets, own patterns and personal data in the tool results, prompts and events of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "hook"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import RedactionConfig

    return RedactionConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Hide from now on what the configuration says; return a function to stop.

    Raises `ValueError`, with the key, for a configuration that cannot work.
    """
    from .config import read_config
    from .hiding import Hiding

    hiding = Hiding(coordinator, read_config(config or {}))
    hiding.listen()
    return hiding.close
