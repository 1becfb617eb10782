"""Run commands at the events of a session: JSON in, JSON out, and exit code 2 denies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "hook"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import ShellConfig

    return ShellConfig.model_json_schema()


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Listen to the events that have commands; return a function to stop. No command runs before the first event.

    Raises `ValueError`, with the key, for a configuration that cannot work.
    """
    if not config:
        return None
    from .config import read_config
    from .session import SessionHooks

    hooks = SessionHooks(coordinator, read_config(config))
    hooks.listen()
    return hooks.close
