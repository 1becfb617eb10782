"""Wish for the answers of a task in the form of its schema, from the services that can enforce one.

The wish is the capability `turn.response_format` of the task's session: its loop puts it into the requests. Children of
that session have none. A loop, a provider or a service that does not know it answers in prose.
"""

from __future__ import annotations

import json
from typing import Any

CAPABILITY = "turn.response_format"
ANSWER = "answer"
"""The member with the value of a schema that is no object: services want an object on top."""

_DEFINITIONS = ("$defs", "definitions")
_MEMBERS = ("properties", *_DEFINITIONS)
_KINDS = {"type", "enum", "const", "anyOf", "oneOf", "$ref"}
_SPEAKS_OF_OTHERS = {"additionalProperties", "patternProperties", "unevaluatedProperties", "anyOf", "oneOf", "$ref"}
"""Keywords of an object that may have members beside its `properties`."""


def wish(schema: Any) -> dict[str, Any]:
    """Return the capability for the output schema of a task; none without a schema, or for one that allows anything."""
    if schema is None:
        return {}
    plain = as_dict(schema)
    if is_object(plain):
        wanted = {"type": "object", **plain}
    elif _KINDS & plain.keys():
        value = {name: part for name, part in plain.items() if name not in _DEFINITIONS}
        shared = {name: plain[name] for name in _DEFINITIONS if name in plain}
        wanted = {"type": "object", "properties": {ANSWER: value}, "required": [ANSWER], **shared}
    else:
        return {}
    # `allOf` adds members to an object from elsewhere: a closed part would exclude them.
    closed = wanted if '"allOf"' in json.dumps(wanted, default=str) else _close(wanted)
    return {CAPABILITY: {"type": "json_schema", "json_schema": {"name": "answer", "schema": closed}}}


def as_dict(schema: Any) -> dict[str, Any]:
    """Return the JSON Schema of an output schema, which may be a pydantic model."""
    plain: dict[str, Any] = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
    return plain


def is_object(schema: dict[str, Any]) -> bool:
    """Return whether a schema asks for an object."""
    if "type" in schema:
        return bool(schema["type"] == "object")
    return not _KINDS & schema.keys() and bool({"properties", "required"} & schema.keys())


def _close(schema: Any) -> Any:
    """Return a schema with `additionalProperties: false` in objects that name their members and speak of no others."""
    if not isinstance(schema, dict):
        return schema
    closed = {name: _close_part(name, part, schema) for name, part in schema.items()}
    named = schema.get("properties")
    if isinstance(named, dict) and not _SPEAKS_OF_OTHERS & schema.keys() and {*schema.get("required", ())} <= {*named}:
        closed["additionalProperties"] = False
    return closed


def _close_part(name: str, part: Any, schema: dict[str, Any]) -> Any:
    if name in _MEMBERS and isinstance(part, dict):
        return {each: _close(inner) for each, inner in part.items()}
    if name in ("anyOf", "oneOf") and isinstance(part, list) and "properties" not in schema:
        return [_close(inner) for inner in part]
    return _close(part) if name == "items" else part
