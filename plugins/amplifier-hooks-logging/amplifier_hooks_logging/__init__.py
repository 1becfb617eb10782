"""Log every event of a session as one line of JSON, in files that rotate by size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "hook"

_LOG = "hooks-logging.log"
"""The capability for the log, from mounting to the ready session."""


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError`, with the key, for a configuration that cannot work."""
    from .config import read_config

    read_config(config)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import LogConfig

    return LogConfig.model_json_schema()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Listen to the well-known events; return a function to stop and to write the waiting lines.

    No file is touched before the first lines are written. Raises `ValueError`, with the key, for a configuration that
    cannot work.
    """
    from .config import read_config
    from .log import SessionLog

    log = SessionLog(coordinator, read_config(config or {}))
    log.listen()
    coordinator.register_capability(_LOG, log)
    return log.close


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    """Listen also to announced events of other modules: all of them are mounted now."""
    from .selection import find_announced

    log = coordinator.get_capability(_LOG)
    if log is not None:
        log.listen(await find_announced(coordinator))
