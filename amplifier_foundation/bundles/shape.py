"""Check a document against the schema, and tell what does not fit by key and line."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from .problems import did_you_mean, error_at, warning_at
from .schema import AgentFile, BackgroundSessions, BundleFile
from .yaml_reader import MAX_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic_core import ErrorDetails

    from ..background.config import BackgroundSessionConfig
    from .documents import Document
    from .positions import KeyPath, Positions
    from .problems import Problem

FIELD_SPELLING: KeyPath = ("session", "orchestrator", "config", "background_sessions")
"""Where bundles of other programs declare their background sessions."""

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_GIVEN = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}
_LIMITS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "finite_number": "must be a finite number",
    "string_pattern_mismatch": "must match {pattern}",
    "value_error": "{error}",
}


def check_shape(document: Document) -> tuple[list[BackgroundSessionConfig], list[Problem]]:
    """Return the background sessions of a document and everything that does not fit its schema."""
    data, positions = document.data or {}, document.positions
    problems = list(_unknown_sections(data, positions, BundleFile))
    configs: list[BackgroundSessionConfig] = []
    try:
        configs += BundleFile.model_validate(data).background_sessions or []
    except ValidationError as error:
        problems += _problems(error, BundleFile, positions)
    elsewhere = at_path(data, FIELD_SPELLING)
    if elsewhere is not None:
        try:
            configs += BackgroundSessions.model_validate({"background_sessions": elsewhere}).background_sessions or []
        except ValidationError as error:
            problems += _problems(error, BackgroundSessions, positions, FIELD_SPELLING[:-1])
    return configs, problems


def check_agent(document: Document) -> list[Problem]:
    """Return everything in an agent's file that does not fit its schema."""
    data, positions = document.data or {}, document.positions
    problems = list(_unknown_sections(data, positions, AgentFile))
    try:
        AgentFile.model_validate(data)
    except ValidationError as error:
        problems += _problems(error, AgentFile, positions)
    return problems


def at_path(data: Any, path: KeyPath) -> Any:
    """Return the value at a path of mapping keys, or None."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _unknown_sections(data: Mapping[str, Any], positions: Positions, model: type[BaseModel]) -> Iterable[Problem]:
    known = model.model_fields
    for name in data:
        if name not in known:
            hint = did_you_mean(str(name), known) or "."
            place = positions.at((name,), key=True)
            yield warning_at(place, "AMP106", f"unknown section{hint} It is ignored")


def _problems(
    error: ValidationError, model: type[BaseModel], positions: Positions, prefix: KeyPath = ()
) -> list[Problem]:
    details = error.errors(include_url=False)[:MAX_PROBLEMS]
    return [_problem(detail, model, positions, prefix) for detail in details]


def _problem(detail: ErrorDetails, model: type[BaseModel], positions: Positions, prefix: KeyPath) -> Problem:
    kind, path = detail["type"], (*prefix, *detail["loc"])
    place = positions.at(path, key=kind == "extra_forbidden")
    if kind == "extra_forbidden":
        known = [*_keys_at(model, detail["loc"][:-1])]
        hint = did_you_mean(str(path[-1]), known) or f"; known here: {', '.join(known)}"
        return error_at(place, "AMP102", f"unknown key{hint}")
    if kind == "missing":
        return error_at(place, "AMP101", "this key is required")
    if kind in _WANTED or kind == "entry":
        return error_at(place, "AMP103", _kind_message(detail))
    message = _LIMITS[kind].format(**detail.get("ctx", {})) if kind in _LIMITS else detail["msg"]
    return error_at(place, "AMP104", message.replace("match ^", "match ").removesuffix("$"))


def _kind_message(detail: ErrorDetails) -> str:
    if detail["type"] == "entry":
        return detail["msg"]
    wanted = _WANTED[detail["type"]]
    if detail.get("ctx", {}).get("class_name") == "ModuleEntry":
        wanted += " such as {module: …, config: …}"
    return f"must be {wanted}, not {_GIVEN.get(type(detail['input']), type(detail['input']).__name__)}"


def _keys_at(model: type[BaseModel], path: Iterable[int | str]) -> list[str]:
    """Return the keys that the mapping at `path` may have."""
    annotation: Any = model
    for part in path:
        annotation = _inner(_plain(annotation), part)
    annotation = _plain(annotation)
    return list(annotation.model_fields) if _is_model(annotation) else []


def _plain(annotation: Any) -> Any:
    """Return what is left of a type without its `Annotated` and its `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType):
            annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
        else:
            return annotation


def _inner(annotation: Any, part: int | str) -> Any:
    if _is_model(annotation):
        field = annotation.model_fields.get(part)
        return field.annotation if field else Any
    inner = get_args(annotation)
    return inner[-1] if inner else Any


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
