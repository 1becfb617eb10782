"""Describe tools to the model, and explain the faults of their descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from json import JSONEncoder
from math import isfinite
from typing import TYPE_CHECKING, Any

from amplifier_core.message_models import ToolSpec

if TYPE_CHECKING:
    from amplifier_core import Tool

_encode: Callable[[object], str] = JSONEncoder(allow_nan=False, check_circular=False).encode
"""An object within itself is nested too deeply then; the check would take as long as the rest."""

_NAMES = (".properties", ".patternProperties", ".$defs", ".definitions")
"""The ends of places whose keys are names."""


class NotDescribed(TypeError):
    """An attribute of a tool has no place in a request."""

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(problem)
        self.part = part
        """The attribute: `input_schema` or `description`."""


def describe_tool(name: str, schema: Any, description: Any) -> ToolSpec:
    """Return the description of a tool. Raises `NotDescribed` for one without a place in a request."""
    if not (schema is None or isinstance(schema, Mapping)):
        given = type(schema).__name__
        raise NotDescribed("input_schema", f"its input_schema must be a mapping, a JSON Schema, not {given}")
    if not (description is None or isinstance(description, str)):
        raise NotDescribed("description", f"its description must be a text, not {type(description).__name__}")
    parameters = dict(schema or {"type": "object", "properties": {}})
    if odd := [key for key in parameters if not isinstance(key, str)]:
        raise NotDescribed("input_schema", f"its input_schema must have texts as keys, not {odd[0]!r}")
    try:
        _encode(parameters)
    except (TypeError, ValueError, RecursionError):
        try:
            parameters = _as_json(parameters, "its input_schema")
        except RecursionError:
            raise NotDescribed("input_schema", "its input_schema: nested too deeply") from None
    return ToolSpec(name=name, description=description, parameters=parameters)


def explain(error: Exception, tool: Tool) -> str:
    """Return why a tool has no description, and `(FILE:LINE)`: the place of a property, else of the tool's class."""
    if not isinstance(error, NotDescribed):
        with suppress(ImportError):  # another kernel has no such function
            from amplifier_core.raised import describe_raised

            return describe_raised(error, tool)
        return f"{type(error).__name__}: {error}"
    attribute = getattr(type(tool), error.part, None)
    source: Any = attribute.fget if isinstance(attribute, property) else type(tool)
    with suppress(OSError, TypeError):  # code without a file
        return f"{error} ({inspect.getsourcefile(source)}:{inspect.getsourcelines(source)[1]})"
    return str(error)


def _as_json(value: Any, where: str, above: tuple[int, ...] = (), *, is_example: bool = False) -> Any:
    """Return a value with plain mappings and lists, and without NaN and infinity.

    In an example they are None, as in JavaScript; a bound that nothing reaches is left out. Raises `NotDescribed` with
    the place of a part without a JSON form, also for an allowed value.
    """
    if id(value) in above:
        raise NotDescribed("input_schema", f"{where}: contains itself")
    within = (*above, id(value))
    if isinstance(value, Mapping):
        made = {}
        for key, item in value.items():
            if not isinstance(key, (str, int, float, type(None))):
                raise NotDescribed("input_schema", f"{where}: a key that is a {type(key).__name__} is not JSON")
            shown = is_example or (key in ("default", "examples") and not where.endswith(_NAMES))
            if shown or key == "const" or not (isinstance(item, float) and not isfinite(item)):
                made[key] = _as_json(item, f"{where}.{key}", within, is_example=shown)
        return made
    if isinstance(value, (list, tuple)):
        return [_as_json(item, f"{where}[{index}]", within, is_example=is_example) for index, item in enumerate(value)]
    if isinstance(value, float) and not isfinite(value):
        if is_example:
            return None
        raise NotDescribed("input_schema", f"{where}: {value} is not JSON")
    if not isinstance(value, (str, int, float, type(None))):
        raise NotDescribed("input_schema", f"{where}: {type(value).__name__} is not JSON")
    return value
