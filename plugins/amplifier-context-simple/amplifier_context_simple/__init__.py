"""The memory of a session: every message kept, and as many of the last turns sent as fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .context import SimpleContextManager

__all__ = ["SimpleContextManager", "mount"]

__amplifier_module_type__ = "context"

_KEYS = ("max_tokens",)


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` naming a key that cannot work, or is one of ours mistyped; others may stand there."""
    from difflib import get_close_matches

    from .context import SimpleContextManager

    SimpleContextManager(config=config)
    for key in config:
        close = [] if key in _KEYS else get_close_matches(str(key), _KEYS, n=1, cutoff=0.85)
        if close:
            raise ValueError(f"context-simple: {key}: unknown key; did you mean '{close[0]}'?")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the memory as the session's context; raises `ValueError` for a config that cannot work."""
    from .context import SimpleContextManager

    await coordinator.mount("context", SimpleContextManager(coordinator, config))


def __getattr__(name: str) -> object:
    if name != "SimpleContextManager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .context import SimpleContextManager

    return SimpleContextManager
