"""Hold values to a JSON Schema (2020-12), in time that a value cannot stretch: its patterns need no backtracking.

The values come from models, and from callers. Python's own patterns may take hours for 40 characters.
"""

from __future__ import annotations

import re
from contextlib import suppress
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

_TOKENS = re.compile(r"\\[pPux]\{[^}]*\}|\\.|\{\d*,?\d*\}|.", re.DOTALL)
_SPACE = r"\s\x{FEFF}--\x{85}"
_ESCAPES = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
    r"\s": f"[{_SPACE}]",
    r"\S": f"[^{_SPACE}]",
    r"\Z": r"\z",
    r"\0": r"\x00",
    r"\<": "<",
    r"\>": ">",
}
"""Escapes of ECMA 262, and `\\Z` of Python, as Rust has them."""
_OUTSIDE = {".": r"[^\n\r\x{2028}\x{2029}]", r"\b": r"(?-u:\b)", r"\B": r"(?-u:\B)"}
"""The same, outside of a class of characters."""
_NO_CHARACTER, _CHARACTER, _RANGE = range(3)
"""In a class: before a character, after one with which a range may begin, and within a range."""
_WITHOUT = "Lookarounds and backreferences do not exist here: say it without"
_REMEDIES = {
    "look-around": _WITHOUT,
    "backreference": _WITHOUT,
    "size limit": "Say the length with minLength and maxLength, and the characters with a pattern: '^[a-z]*$'",
}
_ESCAPE = "Write a backslash before a character that stands for itself"


class SchemaUnusable(ValueError):
    """No value can be held to a schema."""


def check_schema(schema: Any) -> None:
    """Raise `SchemaUnusable` for what is no JSON Schema, or cannot be used."""
    found = list(_find_schemas(schema))
    keywords = {key for each in found for key in each}
    if {"unevaluatedProperties", "patternProperties"} <= keywords:
        raise SchemaUnusable("has 'unevaluatedProperties' beside 'patternProperties', which are not supported together")
    for each in found:
        for pattern in (*each.get("patternProperties", ()), *(text for text in [each.get("pattern")] if text)):
            _compile(pattern)
    for sample in _SAMPLES:
        if _TOO_DEEP in find_problems(schema, sample, 1):
            raise SchemaUnusable("refers to itself without an end")


def _check_form(schema: Any) -> None:
    from jsonschema import (  # type: ignore[import-untyped]  # it has no types
        Draft202012Validator,
        FormatChecker,
        SchemaError,
    )

    try:
        Draft202012Validator.check_schema(schema, FormatChecker(()))  # a pattern need not be one of Python
    except SchemaError as error:
        raise SchemaUnusable(f"is no JSON Schema: {error.json_path}: {error.message}") from None
    except RecursionError:
        raise SchemaUnusable("is nested too deeply") from None


def _find_schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema, those in it, and those in other places of it that they refer to. Raises `SchemaUnusable`."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

    _check_form(schema)
    resolver = EMPTY_REGISTRY.with_resource("", DRAFT202012.create_resource(schema)).resolver()
    waiting, known = [schema], {id(schema)}
    for each in waiting:
        if not isinstance(each, dict):
            continue
        yield each
        below = [*DRAFT202012.subresources_of(each)]
        for reference in (each[key] for key in ("$ref", "$dynamicRef") if key in each):
            target = None
            with suppress(Unresolvable, LookupError, TypeError, ValueError):  # the samples tell of it
                target = resolver.lookup(reference).contents
            if target is not None and id(target) not in known:
                _check_form(target)
                below.append(target)
        waiting += (part for part in below if id(part) not in known)
        known |= {id(part) for part in below}


def find_problems(schema: Any, value: object, most: int) -> list[str]:
    """Return what is wrong with a value, up to a number of problems. Raises `SchemaUnusable`."""
    # Without a registry, a `$ref` to an address is fetched.
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has no types
    from referencing.exceptions import Unresolvable

    try:
        found = islice(_find_class()(schema, registry=REGISTRY).iter_errors(value), most)
        return [f"{each.json_path}: {each.message}" for each in found]
    except Unresolvable as error:
        raise SchemaUnusable(f"refers to '{error.ref}', which is not in it; nothing is fetched") from None
    except RecursionError:
        return [_TOO_DEEP]


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
        return TypeAdapter(Annotated[str, StringConstraints(pattern=_translate(pattern))])
    except SchemaError as error:
        why = str(error).strip().rpartition("\n")[2].strip().removeprefix("error: ")
        remedy = next((text for part, text in _REMEDIES.items() if part in why), _ESCAPE)
        told = f"has the pattern {pattern!r}, which cannot be used: {why.removeprefix('SchemaError: ').rstrip('.')}"
        raise SchemaUnusable(f"{told}. {remedy}") from None


def _translate(pattern: str) -> str:
    """Return a pattern of ECMA 262, or a usual one of Python, as one of Rust."""
    parts: list[str] = []
    is_in_class, step = False, _NO_CHARACTER
    for token in _TOKENS.findall(pattern):
        part = _ESCAPES.get(token, token[1:] if token[0] == "\\" and not token.isascii() else token)
        if not is_in_class:
            is_in_class, step = token == "[", _NO_CHARACTER
            if token[0] == "{" and not token[1:2].isdigit():
                part = f"{{0{token[1:]}" if re.search(r"\d", token) else rf"\{token}"
            parts.append(_OUTSIDE.get(token, part))
            continue
        is_first = parts[-1] in ("[", "[^")
        if token == "^" and parts[-1] == "[":
            parts[-1] = "[^"
            continue
        if token == "]" and not is_first:
            is_in_class = False
        elif token == "-" and step == _CHARACTER:
            step = _RANGE
        else:
            if step == _RANGE and part[0] == "[" != token:
                parts[-1] = r"\-"  # no range ends with a class
            step = _NO_CHARACTER if step == _RANGE else _CHARACTER
            if token in "[]^&~-":  # alone, or twice, some of these have a meaning for Rust
                part = f"\\{token}"
            part = r"\x08" if token == r"\b" else part
        parts.append(part)
    return "".join(parts)
