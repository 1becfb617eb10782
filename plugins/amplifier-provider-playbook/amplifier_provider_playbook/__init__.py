"""Answer from the rules of a bundle instead of a model, the same way every time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "provider"
credential_env_vars = ()  # it needs no key


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .rules import Playbook

    return Playbook.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the provider `playbook`. Raises `ValueError`, with the key, for a rule that cannot work."""
    from .config import read_config
    from .provider import PlaybookProvider

    provider = PlaybookProvider(read_config(config or {}), getattr(coordinator, "hooks", None))
    await coordinator.mount("providers", provider, name=provider.name)
