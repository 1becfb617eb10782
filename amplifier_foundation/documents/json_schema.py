"""Hold values to a JSON Schema (2020-12), in time that a value cannot stretch: its patterns need no backtracking.

The values come from models, and from callers. Python's own patterns may take hours for 40 characters.
"""

from __future__ import annotations

import json
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import TypeAdapter

    Keyword = Callable[..., Iterator[Any]]

_SAMPLES: tuple[Any, ...] = (None, True, 0, "", [], {})
"""A value of each kind, none of them deep."""
_TOO_DEEP = "$: it is nested too deeply"


class SchemaUnusable(ValueError):
    """No value can be held to a schema."""


def check_schema(schema: Any) -> None:
    """Raise `SchemaUnusable` for what is no JSON Schema, or cannot be used."""
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # it has no types

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise SchemaUnusable(f"is no JSON Schema: {error.json_path}: {error.message}") from None
    except RecursionError:
        raise SchemaUnusable("is nested too deeply") from None
    if '"unevaluatedProperties"' in (text := json.dumps(schema)) and '"patternProperties"' in text:
        raise SchemaUnusable("has 'unevaluatedProperties' beside 'patternProperties', which are not supported together")
    for pattern in _find_patterns(schema):
        _compile(pattern)
    for sample in _SAMPLES:
        if _TOO_DEEP in find_problems(schema, sample, 1):
            raise SchemaUnusable("refers to itself without an end")


def find_problems(schema: Any, value: object, most: int) -> list[str]:
    """Return what is wrong with a value, up to a number of problems. Raises `SchemaUnusable`."""
    from referencing.exceptions import Unresolvable

    try:
        found = islice(_make_validator(schema).iter_errors(value), most)
        return [f"{each.json_path}: {each.message}" for each in found]
    except Unresolvable as error:
        raise SchemaUnusable(f"refers to '{error.ref}', which is not in it; nothing is fetched") from None
    except RecursionError:
        return [_TOO_DEEP]


def _make_validator(schema: Any) -> Any:
    # Without a registry, a `$ref` to an address is fetched.
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has no types

    return _find_class()(schema, registry=REGISTRY)


@lru_cache(1)
def _find_class() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend  # type: ignore[import-untyped]  # it has no types

    keywords = Draft202012Validator.VALIDATORS
    own = {
        "additionalProperties": partial(_check_additional, keywords["additionalProperties"]),
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
    }
    return extend(Draft202012Validator, own)


def _check_pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not _fits(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _check_pattern_properties(validator: Any, patterns: dict[str, Any], value: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "object"):
        for pattern, below in patterns.items():
            for key in (key for key in value if _fits(pattern, key)):
                yield from validator.descend(value[key], below, path=key, schema_path=pattern)


def _check_additional(check: Keyword, validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
    """Have `check` of the library see the members that fit a pattern as declared ones, and no patterns."""
    rest = {key: each for key, each in schema.items() if key != "patternProperties"}
    if validator.is_type(value, "object"):
        fitting = {key: True for key in value if any(_fits(each, key) for each in schema.get("patternProperties", ()))}
        rest["properties"] = {**fitting, **schema.get("properties", {})}
    yield from check(validator, wanted, value, rest)


def _fits(pattern: str, text: str) -> bool:
    from pydantic import ValidationError

    try:
        _compile(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(256)
def _compile(pattern: str) -> TypeAdapter[str]:
    """Return a check of a text that takes linear time: pydantic's expressions are those of Rust."""
    from pydantic import StringConstraints, TypeAdapter
    from pydantic_core import SchemaError

    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError as error:
        why = str(error).strip().rpartition("\n")[2].removeprefix("error: ").strip()
        told = f"has the pattern {pattern!r}, which cannot be used: {why}"
        raise SchemaUnusable(f"{told}. Lookarounds and backreferences do not exist here") from None


def _find_patterns(schema: Any) -> Iterator[str]:
    """Yield the patterns of a schema, but for those in its examples and defaults."""
    waiting = [schema]
    for each in waiting:
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            yield from (key for key in each.get("patternProperties") or () if isinstance(key, str))
            yield from (text for text in [each.get("pattern")] if isinstance(text, str))
            waiting += (below for key, below in each.items() if key not in ("const", "default", "enum", "examples"))
