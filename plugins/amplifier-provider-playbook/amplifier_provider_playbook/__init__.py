"""A provider that is no model: it answers from the rules of its bundle, the same way every time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "provider"


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` naming the key of a configuration that cannot work."""
    from .config import read_config

    read_config(config)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the provider `playbook`. Raises `ValueError` naming the key of a rule that cannot work."""
    from .config import read_config
    from .provider import PlaybookProvider

    provider = PlaybookProvider(read_config(config or {}), getattr(coordinator, "hooks", None))
    await coordinator.mount("providers", provider, name=provider.name)
