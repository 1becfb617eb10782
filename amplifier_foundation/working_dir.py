"""The folder that a session works in, as its modules learn of it."""

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
    """Have the session work in `path`, made absolute; before its modules are mounted, which may ask only then."""
    coordinator.register_capability(WORKING_DIR_CAPABILITY, str(Path(path).expanduser().absolute()))
