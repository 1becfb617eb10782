"""The event log of a session: one line of JSON an event, in files that rotate by size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "hook"

_LOG = "hooks-logging.log"
"""The capability under which a session keeps its log until everything is mounted."""


def check_config(config: dict[str, Any]) -> None:
    """Raise `ValueError` naming the key of a configuration that cannot work."""
    from .config import read_config

    read_config(config)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Listen to the well-known events; return what ends that and writes the lines that wait.

    No file is touched before the first lines are written. Raises `ValueError` naming the key of a configuration that
    cannot work.
    """
    from .config import read_config
    from .log import SessionLog

    log = SessionLog(coordinator, read_config(config or {}))
    log.listen()
    coordinator.register_capability(_LOG, log)
    return log.close


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    """Listen also to the events that other modules announce: now all of them are mounted."""
    from .selection import announced

    log = coordinator.get_capability(_LOG)
    if log is not None:
        log.listen(await announced(coordinator))
