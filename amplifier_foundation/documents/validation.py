"""Check data of a document against a pydantic model, and locate each problem by key and line."""

from __future__ import annotations

from functools import cache
from itertools import islice
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from .dicts import at_path
from .problems import did_you_mean, error_at, warning_at
from .yaml_reader import MAX_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from .positions import KeyPath, Positions
    from .problems import Problem

LONGEST_WORD = 80
"""Characters; longer keys get no suggestion."""

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


def unknown_keys(
    data: Mapping[str, Any], positions: Positions, model: type[BaseModel], *path: str
) -> Iterable[Problem]:
    """Yield a warning for each ignored key of the mapping at `path`, and of the open mappings in it.

    Ignored are keys without a field in `model`, unless it declares a type for them: those have names of their own.
    """
    section, known = at_path(data, path), fields_of(model)
    if not isinstance(section, dict):
        return
    unknown, of_others = (name for name in section if name not in known), _type_of_others(model)
    code, what = ("AMP102", "key") if path else ("AMP106", "section")
    for name in islice(unknown, MAX_PROBLEMS):
        if of_others is Any:
            hint = _suggest(name, known) or "."
            yield warning_at(positions.at((*path, name), key=True), code, f"unknown {what}{hint} It is ignored")
        elif _is_model(of_others):
            yield from unknown_keys(data, positions, of_others, *path, name)
    for name, field in known.items():
        [kind, *_] = _kinds(field.annotation)
        if name in section and _is_model(kind) and kind.model_config.get("extra") == "allow":
            yield from unknown_keys(data, positions, kind, *path, name)


def _suggest(name: object, known: Iterable[str]) -> str:
    return did_you_mean(str(name), known) if len(str(name)) <= LONGEST_WORD else ""


def validation_problems(
    error: ValidationError, model: type[BaseModel], positions: Positions, prefix: KeyPath = ()
) -> list[Problem]:
    """Return each mistake in `error` at its position; `prefix` is the path of the validated data."""
    found: dict[KeyPath | int, list[_Mistake]] = {}
    for number, detail in enumerate(error.errors(include_url=False)[:MAX_PROBLEMS]):
        path, union = _split_loc(model, detail["loc"])
        found.setdefault(number if union is None else union, []).append(_Mistake(path, detail))
    relevant: list[_Mistake] = []
    for group in found.values():
        paths = {mistake.path for mistake in group}
        deepest = max(map(len, paths))
        if len(paths) > 1:  # of a union: the type that fits furthest was meant
            relevant += [mistake for mistake in group if len(mistake.path) == deepest]
        else:
            relevant.append(group[0]._replace(others=tuple(mistake.detail for mistake in group[1:])))
    told = (mistake for mistake in relevant if (*prefix, *mistake.path) not in positions.refused)
    return [_to_problem(mistake, model, positions, prefix) for mistake in told]


class _Mistake(NamedTuple):
    """One wrong value; `others` are the complaints of a union's other types."""

    path: KeyPath
    detail: ErrorDetails
    others: tuple[ErrorDetails, ...] = ()


def _split_loc(model: type[BaseModel], loc: KeyPath) -> tuple[KeyPath, KeyPath | None]:
    """Return `loc` without the type names pydantic inserts for unions, and the path of the innermost union."""
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


def _to_problem(mistake: _Mistake, model: type[BaseModel], positions: Positions, prefix: KeyPath) -> Problem:
    detail, path = mistake.detail, (*prefix, *mistake.path)
    kind = detail["type"]
    place = positions.at(path, key=kind == "extra_forbidden")
    if kind == "extra_forbidden":
        holder = type_at(model, mistake.path[:-1])
        known = list(fields_of(holder)) if _is_model(holder) else []
        said = getattr(holder, "UNKNOWN", {}).get(path[-1])
        hint = f"; {said}" if said else _suggest(path[-1], known) or f"; known here: {', '.join(known)}"
        return error_at(place, "AMP102", f"unknown key{hint}")
    if kind == "missing":
        return error_at(place, "AMP101", "this key is required")
    if kind == "entry":
        return error_at(place, "AMP103", detail["msg"])
    if kind in _WANTED or mistake.others:
        wanted = " or ".join(_WANTED.get(each["type"]) or each["ctx"]["expected"] for each in (detail, *mistake.others))
        if detail.get("ctx", {}).get("class_name") in ("ModuleEntry", "ProviderEntry", "ToolEntry"):
            wanted += " such as {module: …, config: …}"
        return error_at(place, "AMP103", f"must be {wanted}, not {describe_kind(detail['input'])}")
    limits = {
        name: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        for name, limit in detail.get("ctx", {}).items()
    }
    message = _LIMITS[kind].format(**limits) if kind in _LIMITS else detail["msg"]
    return error_at(place, "AMP104", message.replace("match ^", "match ").removesuffix("$"))


def describe_kind(value: Any) -> str:
    """Return what kind of value it is, for people."""
    return _GIVEN.get(type(value), type(value).__name__)


def type_at(model: type[BaseModel], path: KeyPath) -> Any:
    """Return the declared type of the value at a path of a model; of a union without None, the first."""
    found: Any = model
    for part in path:
        found = _inner(_kinds(found)[0], part)
    return _kinds(found)[0]


def _kinds(annotation: Any) -> list[Any]:
    """Return the types of an annotation, without `Annotated` and None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [kind for each in get_args(annotation) if each is not type(None) for kind in _kinds(each)]
    return [annotation]


def _inner(annotation: Any, part: int | str) -> Any:
    if _is_model(annotation):
        field = fields_of(annotation).get(str(part))
        return field.annotation if field else _type_of_others(annotation)
    inner = get_args(annotation)
    return inner[-1] if inner else Any


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by their written names."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


@cache
def _type_of_others(model: type[BaseModel]) -> Any:
    """Return the declared type of keys without a field (`__pydantic_extra__`), or Any."""
    return next(iter(get_args(get_type_hints(model).get("__pydantic_extra__"))[1:]), Any)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
