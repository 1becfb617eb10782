"""Describe the input of each tool as JSON Schema, and check an input against it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .failures import InvalidInput

if TYPE_CHECKING:
    from .config import BashConfig

_TYPES: dict[str, Any] = {"string": str, "number": (int, float), "boolean": bool}

DESCRIPTIONS = {
    "bash": "Run a bash command in the working folder, inside a sandbox. Each call starts a fresh shell: no variable "
    "and no folder stays. Plain commands that only read need no question; expansions such as $x are asked for.",
    "bash_output": "Return the new output of a command in the background, and its exit code at its end.",
    "bash_kill": "End a command in the background, with all its processes.",
}


def make_schemas(config: BashConfig) -> dict[str, dict[str, Any]]:
    """Return the schema of each tool's input."""
    bash: dict[str, dict[str, Any]] = {
        "command": {"type": "string", "description": "The command, as a text for bash.", "minLength": 1},
        "timeout": {
            "type": "number",
            "description": f"Seconds until it is ended; at most {config.max_timeout:g}.",
            "exclusiveMinimum": 0,
            "maximum": config.max_timeout,
            "default": min(config.timeout, config.max_timeout),
        },
        "cwd": {
            "type": "string",
            "description": "The folder of the command, inside of the working folder.",
            "minLength": 1,
            "default": ".",
        },
        "background": {
            "type": "boolean",
            "description": "Start it, and go on; bash_output returns what it says. It ends with the session.",
            "default": False,
        },
    }
    if config.network:
        bash["network"] = {"type": "boolean", "description": "Ask for the network.", "default": False}
    one = {"id": {"type": "string", "description": "The id that bash returned.", "minLength": 1}}
    return {
        "bash": _schema(bash, ["command"]),
        "bash_output": _schema(one, ["id"]),
        "bash_kill": _schema(one, ["id"]),
    }


def _schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def check(schema: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return the input with its defaults. Raises `InvalidInput` with the name of the field."""
    if not isinstance(given, dict):
        raise InvalidInput(f"the input must be an object, not {type(given).__name__}")
    fields = schema["properties"]
    for name in schema["required"]:
        if name not in given:
            raise InvalidInput(f"'{name}' is missing")
    for name, value in given.items():
        if name not in fields:
            close = get_close_matches(str(name), fields, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(fields)}"
            raise InvalidInput(f"unknown field '{name}'; {hint}")
        _check_value(name, value, fields[name])
    return {**{name: field["default"] for name, field in fields.items() if "default" in field}, **given}


def _check_value(name: str, value: Any, field: dict[str, Any]) -> None:
    wanted = _TYPES[field["type"]]
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        raise InvalidInput(f"'{name}' must be of type {field['type']}, not {type(value).__name__}")
    if isinstance(value, str) and not value.strip():
        raise InvalidInput(f"'{name}' must not be empty")
    if field["type"] == "number" and not 0 < value <= field["maximum"]:
        raise InvalidInput(f"'{name}' must be above 0 and at most {field['maximum']:g}, not {value}")
