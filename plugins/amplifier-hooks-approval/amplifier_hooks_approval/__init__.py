"""Have a person asked about tool calls that the rules of a bundle name, by the permissions of the session."""

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
    from .config import ApprovalConfig

    return ApprovalConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Add the rules to the permissions of the session, or ask by itself without such; return a function to stop.

    The rules stay in the permissions: forks share them. Raises `ValueError`, with the key, for a configuration that
    cannot work.
    """
    from .asking import Asking
    from .config import read_config

    asking = Asking(coordinator, read_config(config or {}))
    asking.listen()
    return asking.close
