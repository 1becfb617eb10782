"""Run the tool loop: ask the model, run its tool calls side by side, and ask again until it answers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .orchestrator import BasicOrchestrator

__all__ = ["BasicOrchestrator", "mount"]

__amplifier_module_type__ = "orchestrator"


def check_config(config: dict[str, Any]) -> list[str]:
    """Return a warning for each unknown key: it may be for other programs.

    Raises `ValueError`, with the key, for one that cannot work or looks mistyped.
    """
    from .config import check_keys, read_config

    read_config(config)
    return check_keys(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import LoopConfig

    return LoopConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the loop as the session's orchestrator. Raises `ValueError` for a configuration that cannot work."""
    await coordinator.mount("orchestrator", _import_loop()(config))


def __getattr__(name: str) -> object:
    if name != "BasicOrchestrator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _import_loop()


@cache  # an import within each mount takes a microsecond of it
def _import_loop() -> type[BasicOrchestrator]:
    from .orchestrator import BasicOrchestrator

    return BasicOrchestrator
