"""Fit a JSON Schema to the part of the standard that the service enforces."""

from __future__ import annotations

import json
from typing import Any

from amplifier_providers.schemas import LISTS, MAPPINGS, is_object

_KNOWN = {"type", "enum", "const", "$ref", "required", "additionalProperties", "title", "description", "default"}
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}


def fit_schema(schema: Any) -> dict[str, Any]:
    """Return a schema as the service takes it: what it does not know becomes a part of the description.

    Raises `ValueError` for a schema with an object that may have any members: the service enforces none.
    """
    if not isinstance(schema, dict) or (is_object(schema) and schema.get("additionalProperties") is not False):
        raise ValueError("the service enforces objects with additionalProperties: false only")
    fitted: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for name, part in schema.items():
        if name in MAPPINGS:
            fitted[name] = {each: fit_schema(inner) for each, inner in part.items()}
        elif name in LISTS:
            fitted["anyOf" if name == "oneOf" else name] = [fit_schema(inner) for inner in part]
        elif name == "items":
            fitted[name] = fit_schema(part)
        elif name in _KNOWN or (name == "format" and part in _FORMATS) or (name == "minItems" and part in (0, 1)):
            fitted[name] = part
        elif name != "$schema":
            more[name] = part
    if more:
        told = f"JSON Schema: {json.dumps(more, ensure_ascii=False, default=str)}"
        fitted["description"] = " ".join(filter(None, (schema.get("description"), told)))
    return fitted
