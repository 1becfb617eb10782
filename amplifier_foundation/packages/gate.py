"""Decide which plugins and modules are loaded: the user's `disabled_plugins`, and the lock of the project.

The gate reads both at the first import of a plugin, and asks no file when neither exists.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_core.entry_points import guard_with
from amplifier_core.errors import PluginRefused

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.entry_points import EntryPoint

    from .lock import Lock

DISABLED = "you have disabled it. Enable it with"
PROGRAM = "amplifier"
"""The distribution of the program itself: it is neither switched off nor pinned."""


class Gate:
    """Refuses what is disabled, and what is not as the project in `folder` (default: the current one) pinned it."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._rules: tuple[frozenset[str], Lock | None] | None = None

    def __call__(self, entry: EntryPoint) -> PluginRefused | None:
        """Return why an entry point is not loaded; None if it is."""
        if entry.dist.name == PROGRAM:
            return None
        if self._rules is None:
            self._rules = frozenset(read_disabled()), find_lock(self._folder)
        disabled, lock = self._rules
        if entry.name in disabled:
            return PluginRefused(entry.name, str(entry.dist), f"{DISABLED}: amplifier plugin enable {entry.name}")
        return lock.check(entry) if lock is not None else None


def close_gate() -> None:
    """Have this process, and those that it forks, load only what the gate lets through."""
    guard_with(Gate())


def read_disabled() -> list[str]:
    """Return the names of the disabled plugins; none when the settings of the user cannot be read."""
    from ..settings.places import settings_file

    file = settings_file("user")
    if not os.path.lexists(file):  # also when its folder cannot be entered, which is told of what needs it
        return []
    from ..settings.layer import file_layer

    layer = file_layer("user", file, file.parent)
    return [str(name) for name in (layer.values.get("disabled_plugins") or ())] if layer is not None else []


def find_lock(folder: Path | None = None) -> Lock | None:
    """Return the lock of the project around a folder; None without one. Raises `LockUnreadable`."""
    from ..settings.places import FOLDER, project_folder

    project = None
    with suppress(OSError):  # the folder was deleted
        project = project_folder(folder)
    if project is None or not (project / FOLDER / "plugins.lock").exists():
        return None
    from .lock import read_lock

    return read_lock(project / FOLDER / "plugins.lock")
