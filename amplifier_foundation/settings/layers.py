"""The settings of one source, checked: a file, the environment or the command line."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleLoadError, BundleNotFoundError
from amplifier_core.utils import redact_secrets

from ..bundles.paths import is_path, local_path
from ..bundles.positions import Place, Positions, show_file
from ..bundles.problems import Problem, did_you_mean, error_at, has_errors, warning_at
from ..bundles.references import SUFFIXES
from ..dicts import flattened, get_nested

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..bundles.documents import Document

_CODES = {"AMP102": "AMP301", "AMP103": "AMP302", "AMP104": "AMP303"}
"""What a check of shapes finds, as it is called in settings."""
_SAID_OF_BUNDLES = (("; a bundle is one", "; a settings file is one"), ("'bundle: {name: …}'", "'bundle: my-bundle'"))
_FROM_ELSEWHERE = re.compile(r"\$\{\w+\}")
"""A reference to what is kept elsewhere."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings of one source; those with an error have no `values`. A source that is no file has no `positions`."""

    source: str
    values: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    positions: Positions | None = None


def file_layer(scope: str, path: Path, base: Path) -> Layer | None:
    """Return the settings of a file, whose relative paths are relative to `base`; None: there is no such file."""
    document = read_file(path)
    if document is None:
        return None
    if document.data is None or has_errors(document.problems):
        return Layer(scope, {}, tuple(document.problems), document.positions)
    layer = checked_layer(scope, document.data, base, document.positions)
    if scope != "project":
        return layer
    return Layer(scope, layer.values, (*layer.problems, *_secrets(document)), layer.positions)


def checked_layer(source: str, data: Mapping[str, Any], base: Path, positions: Positions | None = None) -> Layer:
    """Return `data` as the settings of a source: empty keys left out, paths absolute."""
    where = positions or Positions(source)
    values = _plain({key: deepcopy(value) for key, value in data.items() if value is not None}, where)
    ignored = [*_leave_out_unknown(values, where)] if positions else []
    problems = [*shape_problems(values, where)]
    if not problems:
        problems += _anchor(values, base, where)
    return Layer(source, {} if problems else values, (*ignored, *problems), positions)


def _leave_out_unknown(values: dict[str, Any], positions: Positions) -> Iterator[Problem]:
    """Take sections out that another program reads in the same file; what is nearly a setting of ours is a mistake."""
    from .schema import SettingsFile

    for key in [key for key in values if key not in SettingsFile.model_fields]:
        if not did_you_mean(key, SettingsFile.model_fields):
            del values[key]
            yield warning_at(positions.at((key,), key=True), "AMP301", "not a setting of this program; it is ignored")


def read_file(path: Path) -> Document | None:
    """Read a settings file; what is wrong with its text is in `problems`, in the words of settings."""
    from ..bundles.documents import Document, read_document

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
    document.problems = [_in_our_words(problem) for problem in document.problems]
    return document


def _in_our_words(problem: Problem) -> Problem:
    from dataclasses import replace

    message = problem.message
    for theirs, ours in _SAID_OF_BUNDLES:
        message = message.replace(theirs, ours)
    return replace(problem, message=message)


def shape_problems(values: Mapping[str, Any], positions: Positions) -> list[Problem]:
    """Return what does not fit the schema."""
    if not values:
        return []
    from dataclasses import replace

    from pydantic import ValidationError

    from ..bundles.shape import misfits
    from .schema import SettingsFile

    try:
        SettingsFile.model_validate(values)
    except ValidationError as error:
        found = misfits(error, SettingsFile, positions)
        return [replace(problem, code=_CODES.get(problem.code, problem.code)) for problem in found]
    return []


def _plain(values: dict[str, Any], positions: Positions) -> dict[str, Any]:
    """Read `bundle: {active: name}`, as it is published, as `bundle: name`."""
    written = values.get("bundle")
    if isinstance(written, dict) and list(written) == ["active"]:
        values["bundle"] = written["active"]
        active = positions.values.get(("bundle", "active"))
        if active:
            positions.values[("bundle",)] = active
    return values


def _anchor(values: dict[str, Any], base: Path, positions: Positions) -> Iterator[Problem]:
    """Make every relative path absolute: whoever uses it may stand in another folder."""
    for holder, key, path in _paths(values):
        try:
            holder[key] = str(local_path(holder[key], base)[0])
        except ValueError as error:
            yield error_at(positions.at(path), "AMP304", str(error))


def _paths(values: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, tuple[str, ...]]]:
    """Yield each mapping that holds a path, the key of that, and where it stands; a bundle may be a name instead."""
    bundle = values.get("bundle", "")
    if is_path(bundle) and ("/" in bundle or bundle.endswith(SUFFIXES)):
        yield values, "bundle", ("bundle",)
    for name, where in values.get("bundles", {}).items():
        if is_path(where):
            yield values["bundles"], name, ("bundles", name)
    for module, override in values.get("overrides", {}).items():
        if is_path(override.get("source", "https:")):
            yield override, "source", ("overrides", module, "source")


def _secrets(document: Document) -> Iterator[Problem]:
    data = document.data or {}
    for path, shown in flattened(redact_secrets(data)):
        value = get_nested(data, path)
        if shown == "[REDACTED]" and value and not _FROM_ELSEWHERE.fullmatch(str(value)):
            message = "a secret in a file that the whole project sees; put it in settings.local.yaml"
            yield warning_at(document.positions.at(path, key=True), "AMP306", message)
