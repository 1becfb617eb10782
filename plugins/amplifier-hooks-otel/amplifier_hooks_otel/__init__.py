"""Trace sessions by OpenTelemetry: turns, model calls and tool calls, connected with what caused them."""

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
    from .config import make_model

    return make_model().model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None] | None:
    """Listen to the session, and to the queues of a running bundle; return how to end that.

    Nothing is exported, and no SDK imported, before the first span ends. With `OTEL_SDK_DISABLED=true` nothing happens.
    Raises `ValueError`, with the key, for a configuration that cannot work.
    """
    from .config import read_config
    from .mounting import attach

    return attach(coordinator, read_config(config or {}))
