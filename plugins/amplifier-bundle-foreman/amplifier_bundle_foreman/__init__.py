"""Offer the bundles `foreman:bundle` and `foreman:workers/…`, and the orchestrator `orchestrator-foreman`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core import ModuleCoordinator
    from amplifier_core.hookspecs import Register

    from .orchestrator import ForemanOrchestrator

__all__ = ["ForemanOrchestrator", "amplifier_register_bundle", "mount"]

__amplifier_module_type__ = "orchestrator"


@hookimpl
def amplifier_register_bundle(register: Register[str | Path]) -> None:
    """Register the bundles."""
    from pathlib import Path

    register("foreman", Path(__file__).parent / "bundles")


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` for a configuration that cannot work."""
    from .orchestrator import ForemanOrchestrator

    ForemanOrchestrator(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from amplifier_loop_basic.config import LoopConfig

    return LoopConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the foreman as the session's orchestrator, and offer `session.steer`.

    Raises `ValueError` for a configuration that cannot work.
    """
    from amplifier_loop_streaming import STEER

    from .orchestrator import ForemanOrchestrator

    foreman = ForemanOrchestrator(config)
    coordinator.register_capability(STEER, foreman.steer)
    await coordinator.mount("orchestrator", foreman)


def __getattr__(name: str) -> object:
    if name == "ForemanOrchestrator":
        from .orchestrator import ForemanOrchestrator

        return ForemanOrchestrator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
