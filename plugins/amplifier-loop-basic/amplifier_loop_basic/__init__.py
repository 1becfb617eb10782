"""The tool loop: ask the model, run the tools it calls side by side, ask again, until it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .orchestrator import BasicOrchestrator

__all__ = ["BasicOrchestrator", "mount"]

__amplifier_module_type__ = "orchestrator"

_KEYS = ("max_iterations", "default_provider")


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` naming a key that cannot work, or is one of ours mistyped; others may stand there."""
    from difflib import get_close_matches

    from .orchestrator import BasicOrchestrator

    BasicOrchestrator(config)
    for key in config:
        close = [] if key in _KEYS else get_close_matches(str(key), _KEYS, n=1, cutoff=0.85)
        if close:
            raise ValueError(f"loop-basic: {key}: unknown key; did you mean '{close[0]}'?")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the loop as the session's orchestrator; raises `ValueError` for a config that cannot work."""
    from .orchestrator import BasicOrchestrator

    await coordinator.mount("orchestrator", BasicOrchestrator(config))


def __getattr__(name: str) -> object:
    if name != "BasicOrchestrator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .orchestrator import BasicOrchestrator

    return BasicOrchestrator
