"""Run the tool loop of a session, and take in messages of the user at each of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .orchestrator import StreamingOrchestrator
    from .steering import Steering, SteeringFull

__all__ = ["Steering", "SteeringFull", "StreamingOrchestrator", "mount"]

__amplifier_module_type__ = "orchestrator"

STEER = "session.steer"
"""The capability to send a message into a running turn."""
STEERED = "orchestrator:steering_injected"
"""The event of a message that a step took in."""


def check_config(config: dict[str, Any]) -> list[str]:
    """Return a warning for each unknown key: it may be for other programs.

    Raises `ValueError`, with the key, for one that cannot work or looks mistyped.
    """
    from amplifier_loop_basic.config import check_keys, read_config

    from .orchestrator import NAME

    read_config(config, NAME)
    return check_keys(config, NAME)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from amplifier_loop_basic.config import LoopConfig

    return LoopConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the loop as the session's orchestrator, and offer `session.steer`.

    Raises `ValueError` for a configuration that cannot work.
    """
    from .orchestrator import NAME, StreamingOrchestrator

    loop = StreamingOrchestrator(config)
    coordinator.register_contributor("observability.events", NAME, lambda: [STEERED])
    coordinator.register_capability(STEER, loop.steer)
    await coordinator.mount("orchestrator", loop)


def __getattr__(name: str) -> object:
    if name == "StreamingOrchestrator":
        from .orchestrator import StreamingOrchestrator

        return StreamingOrchestrator
    if name in ("Steering", "SteeringFull"):
        from . import steering

        return getattr(steering, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
