"""All settings together, and which of them said what."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bundles.merge import deep_merge
from ..bundles.positions import Place, format_path
from ..bundles.problems import Problem, has_errors
from ..dicts import get_nested, keys_of, set_nested
from .layers import Layer, checked_layer, file_layer
from .places import SCOPES, project_folder, settings_file
from .problems import InvalidSettings, SettingNotSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .places import Scope

Origin = Place | str
"""A line and column of a file, or `default`, `environment` or `command line`; its text names it in either case."""

DEFAULTS: dict[str, Any] = {
    "bundle": None,
    "bundles": {},
    "storage": "storage-sqlite",
    "overrides": {},
    "fetch": {"timeout": 120},
    "retention": {"sessions": "90d", "keep": 20},
}
"""Every setting there is, as it is when nobody sets it; the time limit is in seconds."""

_VARIABLES = {"storage": "AMPLIFIER_STORAGE", "fetch.timeout": "AMPLIFIER_FETCH_TIMEOUT"}
_NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts: `values`, with every default filled in; `problems` are warnings."""

    values: dict[str, Any] = field(repr=False)
    problems: tuple[Problem, ...] = ()
    layers: tuple[Layer, ...] = field(default=(), repr=False)
    """Where the values come from; later ones win."""

    def get(self, path: str | Sequence[str], default: Any = None) -> Any:
        """Return a setting by its keys (`fetch.timeout`, `("fetch", "timeout")`), or `default` where none is."""
        return get_nested(self.values, path, default)

    def layer_of(self, path: str | Sequence[str]) -> Layer:
        """Return the last of the sources that set something at `path`. Raises `SettingNotSet`."""
        keys = keys_of(path)
        if get_nested(self.values, keys, _NOTHING) is _NOTHING:
            raise SettingNotSet(f"'{format_path(keys)}' is not set. See: amplifier config show")
        return next(each for each in reversed(self.layers) if get_nested(each.values, keys, _NOTHING) is not _NOTHING)

    def origin(self, path: str | Sequence[str]) -> Origin:
        """Return where the value of a setting stands; of what several sources add to, in the last one.

        Raises `SettingNotSet`.
        """
        layer = self.layer_of(path)
        return layer.positions.at(keys_of(path)) if layer.positions else layer.source


def read_settings(folder: Path | str | None = None, *, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings that count in `folder` (default: the current one).

    `overrides` is what the command line says; what is None there is not said. Raises `InvalidSettings` with everything
    that is wrong, by line.
    """
    layers = (Layer("default", deepcopy(DEFAULTS)), *_layers(folder, overrides or {}))
    problems = tuple(problem for layer in layers for problem in layer.problems)
    if has_errors(problems):
        raise InvalidSettings(problems)
    values: dict[str, Any] = {}
    for layer in layers:
        values = deep_merge(values, layer.values)
    return Settings(values, problems, layers)


def _layers(folder: Path | str | None, overrides: Mapping[str, Any]) -> Iterator[Layer]:
    here = Path(folder or Path.cwd()).absolute()
    for scope, file, base in _files(folder):
        layer = file_layer(scope, file, base)
        if layer is not None:
            yield layer
    yield _environment(here)
    yield checked_layer("command line", overrides, here)


def _files(folder: Path | str | None) -> Iterator[tuple[Scope, Path, Path]]:
    """Yield each file that may be there, with its scope and what its paths are relative to."""
    file, project = settings_file("user"), project_folder(folder)
    yield "user", file, file.parent
    if project is not None:
        yield from ((scope, settings_file(scope, project), project) for scope in SCOPES if scope != "user")


def _environment(here: Path) -> Layer:
    said: dict[str, Any] = {}
    for path, variable in _VARIABLES.items():
        text = os.environ.get(variable)
        if text:
            set_nested(said, path, _number(text) if path == "fetch.timeout" else text)
    layer = checked_layer("environment", said, here)
    named = (replace(problem, file=_VARIABLES.get(problem.path, problem.file)) for problem in layer.problems)
    return replace(layer, problems=tuple(named))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
