"""Check the settings of one source: a file, the environment or the command line."""

from __future__ import annotations

import os
import stat
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleLoadError, BundleNotFoundError
from amplifier_core.frozen import frozen
from amplifier_core.utils import redact_secrets

from ..documents.dicts import flatten, get_nested
from ..documents.kept import Check
from ..documents.local_paths import SUFFIXES, is_path, local_path
from ..documents.positions import Place, Positions, show_file
from ..documents.problems import Problem, did_you_mean, error_at, has_errors, warning_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..documents.document import Document

DEFAULTS: dict[str, Any] = {
    "bundle": None,
    "bundles": {},
    "storage": "storage-sqlite",
    "overrides": {},
    "models": {},
    "permissions": {},
    "fetch": {"timeout": 120},
    "approvals": {"timeout": "24h"},
    "retention": {"sessions": "90d", "keep": 20, "max_size": 0, "undo": "200MB", "prompts": 1000},
    "notify": [],
    "hosts": {"lease": 30},
    "transports": [],
    "servers": {},
    "disabled_plugins": [],
    "max_subprocess": 4,
}
"""All settings with their defaults; the time limit is in seconds."""

_OWN = {"disabled_plugins", "servers", "transports"}
"""Settings of a person, not of a project: they lead what happens here to others, and back, or switch guards off."""
_OF_OTHERS = {"modules"}
"""Sections of published programs with a name similar to one of `DEFAULTS`."""
MAX_KEPT = 64 * 1024
"""Bytes; larger files are checked every time."""

_CHECK = Check("settings", tuple(Path(__file__).with_name(name) for name in ("layer.py", "schema.py")))
_CODES = {"AMP102": "AMP301", "AMP103": "AMP302", "AMP104": "AMP303"}
"""The codes of settings for those of the schema check."""
_REPHRASED = (("; a bundle is one", "; a settings file is one"), ("'bundle: {name: …}'", "'bundle: my-bundle'"))


@frozen
class Layer:
    """Settings of one source; after an error there are no `values`. Only files have `positions`."""

    source: str
    values: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    positions: Positions | None = None


def file_layer(scope: str, path: Path, base: Path) -> Layer | None:
    """Return the settings of a file, with relative paths below `base`; None for a missing file.

    The values of an unchanged file were kept: its positions are read when somebody asks for them.
    """
    try:
        raw = _read_small(path)
    except FileNotFoundError:
        return None
    if raw is None:
        return _read_layer(scope, path, base, is_checked=False)
    if not any(line.strip() and not line.lstrip().startswith(b"#") for line in raw.splitlines()):
        return Layer(scope, {}, (), Positions(show_file(path)))
    about = repr((str(base), os.environ.get("HOME"), sha256(raw).hexdigest()))
    kept = _CHECK.find(path, about)
    if kept is not None and kept.values is not None:
        return Layer(scope, kept.values, (), _LazyPositions(scope, path, base))
    layer = _read_layer(scope, path, base, is_checked=kept is not None)
    if kept is None and layer is not None and not layer.problems:
        from ..documents.secrets import may_hold_secrets

        _CHECK.keep(path, about, None if may_hold_secrets(layer.values) else layer.values)
    return layer


def _read_small(path: Path) -> bytes | None:
    """Return the bytes of a regular file up to `MAX_KEPT`, None for any other file. Raises `FileNotFoundError`."""
    try:
        status = path.stat()
        return path.read_bytes() if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_KEPT else None
    except FileNotFoundError:
        raise
    except OSError:
        return None


class _LazyPositions(Positions):
    """The positions of a file, read at the first use."""

    def __init__(self, scope: str, path: Path, base: Path) -> None:
        self.file = show_file(path)
        self._arguments = (scope, path, base)

    def __getattr__(self, name: str) -> Any:  # an attribute of `Positions` that is not there yet
        if name.startswith("_"):
            raise AttributeError(name)
        layer = _read_layer(*self._arguments, is_checked=True)
        vars(self).update(vars((layer and layer.positions) or Positions(self.file)))
        return vars(self)[name]


def _read_layer(scope: str, path: Path, base: Path, *, is_checked: bool) -> Layer | None:
    document = read_file(path)
    if document is None:
        return None
    if document.data is None or has_errors(document.problems):
        return Layer(scope, {}, tuple(document.problems), document.positions)
    layer = check_layer(scope, document.data, base, document.positions, is_checked=is_checked)
    if scope != "project":
        return layer
    from ..documents.secrets import VARIABLE

    secrets = []
    for keys, shown in flatten(redact_secrets(document.data)):
        value = get_nested(document.data, keys)
        if shown == "[REDACTED]" and value and not VARIABLE.fullmatch(str(value)):
            message = "a secret in a file that the whole project sees; put it in settings.local.yaml"
            secrets.append(warning_at(document.positions.at(keys, key=True), "AMP306", message))
    return Layer(scope, layer.values, (*layer.problems, *secrets), layer.positions)


def check_layer(
    source: str, data: Mapping[str, Any], base: Path, positions: Positions | None = None, *, is_checked: bool = False
) -> Layer:
    """Return `data` as the settings of a source: without empty keys, with absolute paths.

    `is_checked` skips the schema, for data known to fit.
    """
    where = positions or Positions(source)
    values = {key: deepcopy(value) for key, value in data.items() if value is not None}
    bundle = values.get("bundle")
    if isinstance(bundle, dict) and list(bundle) == ["active"]:  # as published programs write `bundle: name`
        values["bundle"] = bundle["active"]
        active = where.values.get(("bundle", "active"))
        if active:
            where.values[("bundle",)] = active
    ignored = []
    for key in [key for key in values if positions and key not in DEFAULTS]:
        # A similar key is a mistake, any other one a section of another program.
        if key in _OF_OTHERS or not did_you_mean(key, DEFAULTS):
            del values[key]
            place = where.at((key,), key=True)
            ignored.append(warning_at(place, "AMP301", "not a setting of this program; it is ignored"))
    for key in [key for key in values if source in ("project", "local") and key in _OWN]:
        del values[key]
        message = f"only your own settings name {key}; it is ignored here. Set it with: amplifier config set {key}"
        ignored.append(warning_at(where.at((key,), key=True), "AMP303", message))
    problems = [] if is_checked else shape_problems(values, where)
    if running := {key: values[key] for key in ("transports", "servers") if values.get(key) and not problems}:
        from ..documents.secrets import find_secrets

        ignored += find_secrets(running, where)  # after an option: anything else is an error
    for holder, key, path in () if problems else _find_paths(values):  # settings are used in other folders too
        try:
            holder[key] = str(local_path(holder[key], base)[0])
        except ValueError as error:
            problems.append(error_at(where.at(path), "AMP304", str(error)))
    return Layer(source, {} if problems else values, (*ignored, *problems), positions)


def read_file(path: Path) -> Document | None:
    """Read a settings file; mistakes in its text become `problems`, in the words of settings."""
    from ..documents.document import Document, read_document

    try:
        document = read_document(path)
    except BundleNotFoundError:
        return None
    except BundleLoadError as error:
        if isinstance(error.__cause__, NotADirectoryError):
            return None
        shown = show_file(path)
        problem = error_at(Place(shown), "AMP305", str(error).removeprefix(f"{shown}: "))
        return Document(Positions(shown), path=path, problems=[problem])
    for theirs, ours in _REPHRASED:
        document.problems = [
            replace(problem, message=problem.message.replace(theirs, ours)) for problem in document.problems
        ]
    return document


def shape_problems(values: Mapping[str, Any], positions: Positions) -> list[Problem]:
    """Return the problems of the schema check."""
    if not values:
        return []
    from pydantic import ValidationError

    from ..documents.validation import validation_problems
    from .schema import SettingsFile

    try:
        SettingsFile.model_validate(values)
    except ValidationError as error:
        found = validation_problems(error, SettingsFile, positions)
        return [replace(problem, code=_CODES.get(problem.code, problem.code)) for problem in found]
    return []


def _find_paths(values: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, tuple[str, ...]]]:
    """Yield the mapping, key and key path of every path; a bundle may be a name instead."""
    bundle = values.get("bundle", "")
    if is_path(bundle) and ("/" in bundle or bundle.endswith(SUFFIXES)):
        yield values, "bundle", ("bundle",)
    for name, where in values.get("bundles", {}).items():
        if is_path(where):
            yield values["bundles"], name, ("bundles", name)
    for module, override in values.get("overrides", {}).items():
        if is_path(override.get("source", "https:")):
            yield override, "source", ("overrides", module, "source")
