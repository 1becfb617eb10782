"""Get and set the working folder of a session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_core.coordinator import ModuleCoordinator

WORKING_DIR_CAPABILITY = "session.working_dir"


def get_working_dir(coordinator: ModuleCoordinator, default: Path | str | None = None) -> Path:
    """Return the session's folder, or `default`, or the process's current folder."""
    return Path(coordinator.get_capability(WORKING_DIR_CAPABILITY) or default or Path.cwd())


def set_working_dir(coordinator: ModuleCoordinator, path: Path | str) -> None:
    """Set the session's folder to `path`, made absolute. Modules may read it when they are mounted: set it before."""
    coordinator.register_capability(WORKING_DIR_CAPABILITY, str(Path(path).expanduser().absolute()))
