"""Look into the JSON Schemas of answers: each service enforces a part of the standard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

MAPPINGS = ("properties", "$defs", "definitions")
"""Keywords whose values are schemas by name."""
LISTS = ("anyOf", "oneOf", "allOf")
"""Keywords whose values are lists of schemas."""


def iterate_schemas(schema: Any) -> Iterator[Any]:
    """Yield a schema and all schemas in it."""
    yield schema
    if not isinstance(schema, dict):
        return
    inner = [each for name in MAPPINGS for each in schema.get(name, {}).values()]
    inner += [each for name in LISTS for each in schema.get(name, ())]
    inner += [schema["items"]] if "items" in schema else []
    for each in inner:
        yield from iterate_schemas(each)


def is_object(schema: dict[str, Any]) -> bool:
    """Return whether a schema describes an object."""
    return schema.get("type") == "object" or "properties" in schema
