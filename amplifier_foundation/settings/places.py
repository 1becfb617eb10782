"""Which files hold settings."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from ..paths import data_home
from .problems import SettingNotWritten

Scope = Literal["user", "project", "local"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""Whose settings a file holds; later ones win."""

FOLDER = ".amplifier"
_NAMES: dict[Scope, str] = {"project": "settings.yaml", "local": "settings.local.yaml"}


def project_folder(folder: Path | str | None = None) -> Path | None:
    """Return the nearest folder, upward from `folder` (default: the current one), that has an `.amplifier` folder.

    The search ends at the root of a git checkout, and below the home folder, whose `.amplifier` is no project's. Above
    `folder`, what belongs to another user does not count: in a shared folder anybody could put settings over your work.
    """
    start = _start(folder)
    for each in (start, *start.parents):
        if each == _home():
            return None
        if _is_project(each, start):
            return each
        if _is_checkout(each):
            return None
    return None


def settings_file(scope: Scope, folder: Path | str | None = None) -> Path:
    """Return the file of a scope, which need not exist; a project that has none yet begins in `folder`.

    Raises `SettingNotWritten` where there can be no project: in the home folder.
    """
    if scope == "user":
        return data_home() / "settings.yaml"
    root = project_folder(folder) or _start(folder)
    file = root / FOLDER / _NAMES[scope]
    if root == _home() or file.parent == _resolved(data_home()):
        raise SettingNotWritten(file, "this folder is no project; use the scope 'user', or go to a project's folder")
    return file


def settings_files(folder: Path | str | None = None) -> dict[Scope, Path]:
    """Return the file of every scope that counts in `folder`, existing or not."""
    files: dict[Scope, Path] = {}
    for scope in SCOPES:
        with suppress(SettingNotWritten):
            files[scope] = settings_file(scope, folder)
    return files


def _is_project(folder: Path, start: Path) -> bool:
    mark = folder / FOLDER
    try:
        if not mark.is_dir() or _resolved(mark) == _resolved(data_home()):
            return False
        return folder == start or mark.stat().st_uid == start.stat().st_uid
    except OSError:
        return False


def _is_checkout(folder: Path) -> bool:
    try:
        return (folder / ".git").exists()
    except OSError:  # a folder that may not be looked into
        return False


def _start(folder: Path | str | None) -> Path:
    return _resolved(Path(folder or Path.cwd()).expanduser())


def _home() -> Path | None:
    try:
        return _resolved(Path.home())
    except RuntimeError:  # a user without a home
        return None


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))  # which, other than `Path.resolve`, takes a loop of symlinks as it is
