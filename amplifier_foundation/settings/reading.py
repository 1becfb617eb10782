"""Read all layers of settings, and find the origin of each value."""

from __future__ import annotations

import os
from contextlib import suppress
from copy import deepcopy
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

from ..documents.dicts import deep_merge, get_nested, keys_of, set_nested
from ..documents.positions import Place, format_path
from ..documents.problems import Problem, has_errors
from ..paths import require_own_files
from .layer import DEFAULTS, Layer, check_layer, file_layer
from .places import SCOPES, project_folder, settings_file
from .problems import InvalidSettings, SettingNotSet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .places import Scope

Origin = Place | str
"""A line and column of a file, or `default`, `environment` or `command line`; both are readable as text."""

_VARIABLES = {"storage": "AMPLIFIER_STORAGE", "fetch.timeout": "AMPLIFIER_FETCH_TIMEOUT"}
_NOTHING: Any = object()


@frozen
class Settings:
    """The effective `values`, defaults included; `problems` are warnings."""

    values: dict[str, Any] = field(repr=False)
    problems: tuple[Problem, ...] = ()
    layers: tuple[Layer, ...] = field(default=(), repr=False)
    """The sources of the values; later ones win."""

    def get(self, path: str | Sequence[str], default: Any = None) -> Any:
        """Return a setting by its keys (`fetch.timeout`, `("fetch", "timeout")`), or `default`."""
        return get_nested(self.values, path, default)

    def layer_of(self, path: str | Sequence[str]) -> Layer:
        """Return the last layer with a value at `path`. Raises `SettingNotSet`."""
        keys = keys_of(path)
        if get_nested(self.values, keys, _NOTHING) is _NOTHING:
            raise SettingNotSet(f"'{format_path(keys)}' is not set. See: amplifier config show")
        return next(each for each in reversed(self.layers) if get_nested(each.values, keys, _NOTHING) is not _NOTHING)

    def origin(self, path: str | Sequence[str]) -> Origin:
        """Return the origin of a setting, in the last layer with a value for it. Raises `SettingNotSet`."""
        layer = self.layer_of(path)
        return layer.positions.at(keys_of(path)) if layer.positions else layer.source


def read_settings(folder: Path | str | None = None, *, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return the effective settings in `folder` (default: the current one).

    `overrides` are the values of the command line; None counts as missing. Raises `InvalidSettings` with every mistake,
    by line, and `StoreUnavailable` for files of others in the data folder.
    """
    require_own_files()
    here = Path(folder or Path.cwd()).absolute()
    file, project = settings_file("user"), project_folder(folder)
    files: list[tuple[Scope, Path, Path]] = [("user", file, file.parent)]
    if project is not None:
        files += ((scope, settings_file(scope, project), project) for scope in SCOPES if scope != "user")
    of_files = (file_layer(scope, path, base) for scope, path, base in files)
    layers = (
        Layer("default", deepcopy(DEFAULTS)),
        *(layer for layer in of_files if layer is not None),
        _read_environment(here),
        check_layer("command line", overrides or {}, here),
    )
    problems = tuple(problem for layer in layers for problem in layer.problems)
    if has_errors(problems):
        raise InvalidSettings(problems)
    values: dict[str, Any] = {}
    for layer in layers:
        values = deep_merge(values, layer.values)
    return Settings(values, problems, layers)


def read_user_settings() -> Settings:
    """Return the settings of the user, without those of any project. Raises `InvalidSettings`."""
    return read_settings(Path.cwd().anchor)


def _read_environment(here: Path) -> Layer:
    given: dict[str, Any] = {}
    for path, variable in _VARIABLES.items():
        text = os.environ.get(variable)
        if text:
            set_nested(given, path, text)
    if "fetch" in given:
        with suppress(ValueError):  # the schema reports text
            given["fetch"]["timeout"] = float(given["fetch"]["timeout"])
    layer = check_layer("environment", given, here)
    named = (replace(problem, file=_VARIABLES.get(problem.path, problem.file)) for problem in layer.problems)
    return replace(layer, problems=tuple(named))
