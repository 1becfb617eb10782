"""Find the files of settings."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from ..paths import data_home, find_home
from .problems import SettingNotWritten

Scope = Literal["user", "project", "local"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""The owners of settings files; later ones win."""

FOLDER = ".amplifier"
_NAMES: dict[Scope, str] = {"project": "settings.yaml", "local": "settings.local.yaml"}


def project_folder(folder: Path | str | None = None) -> Path | None:
    """Return the nearest folder with an `.amplifier` folder, upward from `folder` (default: the current one).

    The search ends at the root of a git checkout, and below the home folder: its `.amplifier` is no project's. Above
    `folder`, other users' folders do not count: in a shared folder anybody could override your settings.
    """
    start, home = _resolve(folder), _home()
    for each in (start, *start.parents):
        if each == home:
            return None
        mark = each / FOLDER
        try:
            is_project = mark.is_dir() and _resolve(mark) != _resolve(data_home())
            if is_project and (each == start or mark.stat().st_uid == start.stat().st_uid):
                return each
            if (each / ".git").exists():
                return None
        except OSError:  # a folder closed to this user
            continue
    return None


def settings_file(scope: Scope, folder: Path | str | None = None) -> Path:
    """Return the file of a scope, existing or not; a new project begins in `folder`.

    Raises `SettingNotWritten` in the home folder: it is never a project.
    """
    if scope == "user":
        return data_home() / "settings.yaml"
    root = project_folder(folder) or _resolve(folder)
    file = root / FOLDER / _NAMES[scope]
    if root == _home() or file.parent == _resolve(data_home()):
        raise SettingNotWritten(file, "this folder is not a project; use the scope 'user', or a project's folder")
    return file


def settings_files(folder: Path | str | None = None) -> dict[Scope, Path]:
    """Return the file of every scope valid in `folder`, existing or not."""
    files: dict[Scope, Path] = {}
    for scope in SCOPES:
        with suppress(SettingNotWritten):
            files[scope] = settings_file(scope, folder)
    return files


def settings_exist(folder: Path | str | None = None) -> bool:
    """Return whether any settings file of `folder` exists; else the defaults and the environment count."""
    return any(os.path.lexists(file) for file in settings_files(folder).values())


def _home() -> Path | None:
    home = find_home()
    return None if home is None else _resolve(home)


def _resolve(path: Path | str | None) -> Path:
    path = Path(path or Path.cwd()).expanduser()
    return Path(os.path.realpath(path))  # unlike `Path.resolve`, accepts loops of links
