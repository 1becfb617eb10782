"""Get and set the working folder of a session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_core.coordinator import ModuleCoordinator

WORKING_DIR_CAPABILITY = "session.working_dir"
PROJECT_CAPABILITY = "session.project"
"""The folder that the records and events of a session belong to, where it works in another one."""


def get_working_dir(coordinator: ModuleCoordinator, default: Path | str | None = None) -> Path:
    """Return the session's folder, or `default`, or the process's current folder."""
    return Path(coordinator.get_capability(WORKING_DIR_CAPABILITY) or default or Path.cwd())


def set_working_dir(coordinator: ModuleCoordinator, path: Path | str) -> None:
    """Set the session's folder to `path`, made absolute. Modules may read it when they are mounted: set it before."""
    coordinator.register_capability(WORKING_DIR_CAPABILITY, str(Path(path).expanduser().absolute()))


def find_project_folder(coordinator: ModuleCoordinator) -> str:
    """Return the folder that a session's records and events belong to: its project, else its working folder."""
    capability = coordinator.get_capability
    return str(capability(PROJECT_CAPABILITY) or capability(WORKING_DIR_CAPABILITY) or "")
