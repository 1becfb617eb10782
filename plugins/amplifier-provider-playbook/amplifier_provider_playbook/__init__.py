"""Answer from the rules of a bundle instead of a model, the same way every time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_core import ModuleCoordinator

    from .provider import PlaybookProvider
    from .rules import Playbook

__amplifier_module_type__ = "provider"
credential_env_vars = ()  # it needs no key


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    _import_reader()(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .rules import Playbook

    return Playbook.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the provider `playbook`. Raises `ValueError`, with the key, for a rule that cannot work."""
    provider = _import_provider()(_import_reader()(config or {}), getattr(coordinator, "hooks", None))
    await coordinator.mount("providers", provider, name=provider.name)


# An import within each mount takes a microsecond of it.


@cache
def _import_reader() -> Callable[[Mapping[str, Any]], Playbook]:
    from .config import read_config

    return read_config


@cache
def _import_provider() -> type[PlaybookProvider]:
    from .provider import PlaybookProvider

    return PlaybookProvider
