"""Check a document against the schema, and tell what does not fit by key and line."""

from __future__ import annotations

from itertools import islice
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from .problems import did_you_mean, error_at, warning_at
from .schema import AgentFile, AgentsSection, BackgroundSessions, BundleFile, InlineAgent, SpawnSection
from .yaml_reader import MAX_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from ..background.config import BackgroundSessionConfig
    from .documents import Document
    from .positions import KeyPath, Positions
    from .problems import Problem

FIELD_SPELLING: KeyPath = ("session", "orchestrator", "config", "background_sessions")
"""Where bundles of other programs declare their background sessions."""

LONGEST_WORD = 80
"""Characters up to which an unknown key is compared with the known ones."""

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
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
    "value_error": "{error}",
}


def check_shape(document: Document) -> tuple[list[BackgroundSessionConfig], list[Problem]]:
    """Return the background sessions of a document and everything that does not fit its schema."""
    data, positions = document.data or {}, document.positions
    problems = [*_unknown_sections(data, positions, BundleFile), *_unknown_keys(data, positions, SpawnSection, "spawn")]
    problems += _unknown_keys_of_agents(data, positions)
    configs: list[BackgroundSessionConfig] = []
    try:
        configs += BundleFile.model_validate(data).background_sessions or []
    except ValidationError as error:
        problems += misfits(error, BundleFile, positions)
    elsewhere = at_path(data, FIELD_SPELLING)
    if elsewhere is not None:
        try:
            configs += BackgroundSessions.model_validate({"background_sessions": elsewhere}).background_sessions or []
        except ValidationError as error:
            problems += misfits(error, BackgroundSessions, positions, FIELD_SPELLING[:-1])
    return configs, problems


def check_agent(document: Document) -> list[Problem]:
    """Return everything in an agent's file that does not fit its schema."""
    data, positions = document.data or {}, document.positions
    problems = [*_unknown_sections(data, positions, AgentFile), *_unknown_keys(data, positions, SpawnSection, "spawn")]
    try:
        AgentFile.model_validate(data)
    except ValidationError as error:
        problems += misfits(error, AgentFile, positions)
    return problems


def at_path(data: Any, path: KeyPath) -> Any:
    """Return the value at a path of mapping keys, or None."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _unknown_sections(data: Mapping[str, Any], positions: Positions, model: type[BaseModel]) -> Iterable[Problem]:
    known = model.model_fields
    unknown = (name for name in data if name not in known)
    for name in islice(unknown, MAX_PROBLEMS):
        hint = _hint(name, known) or "."
        place = positions.at((name,), key=True)
        yield warning_at(place, "AMP106", f"unknown section{hint} It is ignored")


def _unknown_keys_of_agents(data: Mapping[str, Any], positions: Positions) -> Iterable[Problem]:
    agents = data.get("agents")
    names = (name for name in (agents if isinstance(agents, dict) else ()) if name not in AgentsSection.model_fields)
    for name in islice(names, MAX_PROBLEMS):
        yield from _unknown_keys(data, positions, InlineAgent, "agents", name)
        yield from _unknown_keys(data, positions, SpawnSection, "agents", name, "spawn")


def _unknown_keys(
    data: Mapping[str, Any], positions: Positions, model: type[BaseModel], *path: str
) -> Iterable[Problem]:
    """Yield a warning for each key of the mapping at `path` that `model` does not know, and allows."""
    section, known = at_path(data, path), model.model_fields
    unknown = (name for name in (section if isinstance(section, dict) else ()) if name not in known)
    for name in islice(unknown, MAX_PROBLEMS):
        hint = _hint(name, known) or "."
        yield warning_at(positions.at((*path, name), key=True), "AMP102", f"unknown key{hint} It is ignored")


def _hint(name: object, known: Iterable[str]) -> str:
    """Return which known word `name` may stand for; none, when it is no word."""
    return did_you_mean(str(name), known) if len(str(name)) <= LONGEST_WORD else ""


def misfits(
    error: ValidationError, model: type[BaseModel], positions: Positions, prefix: KeyPath = ()
) -> list[Problem]:
    """Return what `error` says of data that does not fit `model`, each where it stands; `prefix` leads to the data."""
    found: dict[KeyPath | int, list[_Misfit]] = {}
    for number, detail in enumerate(error.errors(include_url=False)[:MAX_PROBLEMS]):
        path, union = _path_of(model, detail["loc"])
        found.setdefault(number if union is None else union, []).append(_Misfit(path, detail))
    nearest = (misfit for group in found.values() for misfit in _nearest(group))
    return [_problem(misfit, model, positions, prefix) for misfit in nearest]


class _Misfit(NamedTuple):
    """What does not fit at a path, and what else would do there."""

    path: KeyPath
    detail: ErrorDetails
    others: tuple[ErrorDetails, ...] = ()


def _path_of(model: type[BaseModel], loc: KeyPath) -> tuple[KeyPath, KeyPath | None]:
    """Return `loc` without the names of kinds that stand in it, and the path of the value that may be of several."""
    annotation: Any = model
    path: KeyPath = ()
    union: KeyPath | None = None
    for part in loc:
        kinds = _kinds(annotation)
        if len(kinds) > 1:
            union, tag = path, str(part).partition("[")[0]
            annotation = next((kind for kind in kinds if tag == getattr(kind, "__name__", "")), kinds[0])
        else:
            path, annotation = (*path, part), _inner(kinds[0], part)
    return path, union


def _nearest(group: list[_Misfit]) -> list[_Misfit]:
    """Return what is told of one value: what is wrong in it, else all that it may be."""
    first, *rest = group
    if not rest:
        return group
    deepest = max(len(misfit.path) for misfit in group)
    if len({misfit.path for misfit in group}) > 1:
        return [misfit for misfit in group if len(misfit.path) == deepest]
    return [first._replace(others=tuple(misfit.detail for misfit in rest))]


def _problem(misfit: _Misfit, model: type[BaseModel], positions: Positions, prefix: KeyPath) -> Problem:
    detail, path = misfit.detail, (*prefix, *misfit.path)
    kind = detail["type"]
    place = positions.at(path, key=kind == "extra_forbidden")
    if kind == "extra_forbidden":
        known = [*_keys_at(model, misfit.path[:-1])]
        hint = _hint(path[-1], known) or f"; known here: {', '.join(known)}"
        return error_at(place, "AMP102", f"unknown key{hint}")
    if kind == "missing":
        return error_at(place, "AMP101", "this key is required")
    if kind in _WANTED or kind == "entry" or misfit.others:
        return error_at(place, "AMP103", _kind_message(detail, *misfit.others))
    message = _LIMITS[kind].format(**detail.get("ctx", {})) if kind in _LIMITS else detail["msg"]
    return error_at(place, "AMP104", message.replace("match ^", "match ").removesuffix("$"))


def _kind_message(detail: ErrorDetails, *others: ErrorDetails) -> str:
    if detail["type"] == "entry":
        return detail["msg"]
    wanted = " or ".join(map(_wanted, (detail, *others)))
    return f"must be {wanted}, not {_GIVEN.get(type(detail['input']), type(detail['input']).__name__)}"


def _wanted(detail: ErrorDetails) -> str:
    wanted = _WANTED.get(detail["type"]) or detail["ctx"]["expected"]
    return f"{wanted} such as {{module: …, config: …}}" if _is_of_entry(detail) else wanted


def _is_of_entry(detail: ErrorDetails) -> bool:
    return detail.get("ctx", {}).get("class_name") == "ModuleEntry"


def _keys_at(model: type[BaseModel], path: Iterable[int | str]) -> list[str]:
    """Return the keys that the mapping at `path` may have."""
    annotation: Any = model
    for part in path:
        annotation = _inner(_kinds(annotation)[0], part)
    [annotation, *_] = _kinds(annotation)
    return list(_fields(annotation)) if _is_model(annotation) else []


def _kinds(annotation: Any) -> list[Any]:
    """Return the types that a value may have, without their `Annotated` and without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [kind for each in get_args(annotation) if each is not type(None) for kind in _kinds(each)]
    return [annotation]


def _inner(annotation: Any, part: int | str) -> Any:
    if _is_model(annotation):
        field = _fields(annotation).get(str(part))
        return field.annotation if field else InlineAgent if annotation is AgentsSection else Any
    inner = get_args(annotation)
    return inner[-1] if inner else Any


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by how they are written."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
