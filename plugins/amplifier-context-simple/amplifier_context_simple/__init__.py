"""Keep every message of a session, and compact requests near the limit of the model."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .context import SimpleContextManager

__all__ = ["SimpleContextManager", "mount"]

__amplifier_module_type__ = "context"


def check_config(config: dict[str, Any]) -> list[str]:
    """Return a warning for each unknown key: it may be for other programs.

    Raises `ValueError`, with the key, for one that cannot work or looks mistyped.
    """
    from .config import check_keys, read_config

    read_config(config)
    return check_keys(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import ContextConfig

    return ContextConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the memory as the session's context. Raises `ValueError` for a configuration that cannot work."""
    await coordinator.mount("context", _import_context()(coordinator, config))


def __getattr__(name: str) -> object:
    if name != "SimpleContextManager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _import_context()


@cache  # an import within each mount takes a microsecond of it
def _import_context() -> type[SimpleContextManager]:
    from .context import SimpleContextManager

    return SimpleContextManager
