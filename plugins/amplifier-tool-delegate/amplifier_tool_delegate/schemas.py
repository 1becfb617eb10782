"""Describe the input of the tool as JSON Schema, and check an input against it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .failures import InvalidInput, shorten

if TYPE_CHECKING:
    from .config import DelegateConfig

DEFAULT_TURNS = 5

_TYPES: dict[str, type] = {"string": str, "integer": int, "array": list}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def make_schema(config: DelegateConfig) -> dict[str, Any]:
    """Return the schema of the input, without the parts that the configuration turns off."""
    features = config.features
    agent = "Who does it: the name of an agent"
    agent += ", or a bundle: its path, or name:path of a registered one." if config.allows_bundles else "."
    properties = {"agent": _text(agent), "instruction": _text("The whole task; the agent knows nothing else of it.")}
    if features.session_resume.enabled:
        properties["session_id"] = _text("Resume this session of an earlier call; 'agent' is not needed then.")
    if features.context_inheritance.enabled:
        properties |= _describe_context(features.context_inheritance.max_turns)
    if config.allows_preferences:
        properties |= _PREFERENCES
    return {"type": "object", "properties": properties, "required": ["instruction"], "additionalProperties": False}


def _describe_context(max_turns: int | None) -> dict[str, Any]:
    turns = {"type": "integer", "description": "The number of turns for 'recent'.", "minimum": 1}
    turns["default"] = DEFAULT_TURNS
    if max_turns is not None:
        turns |= {"maximum": max_turns, "default": min(DEFAULT_TURNS, max_turns)}
    return {
        "context_depth": _text(
            "How much of this conversation the agent gets.", enum=["none", "recent", "all"], default="none"
        ),
        "context_scope": _text(
            "Of that: the messages, also the answers of agents, or every tool result.",
            enum=["conversation", "agents", "full"],
            default="conversation",
        ),
        "context_turns": turns,
    }


_PREFERENCES: dict[str, Any] = {
    "provider_preferences": {
        "type": "array",
        "description": "Providers and models to use; the first available one counts.",
        "items": {
            "type": "object",
            "properties": {"provider": {"type": "string"}, "model": {"type": "string"}},
            "required": ["provider"],
            "additionalProperties": False,
        },
    },
    "model_role": _text("The kind of model for the task, if roles are set up: 'fast', 'reasoning', …"),
}


def check(schema: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return the input with its defaults. Raises `InvalidInput` with the name of the field.

    A null or empty field counts as left out: models write one for a field without a value.
    """
    if not isinstance(given, dict):
        raise InvalidInput(f"the input must be an object, not {type(given).__name__}")
    fields = schema["properties"]
    present = _drop_empty(given)
    for name, value in present.items():
        if name not in fields:
            close = get_close_matches(str(name), fields, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(fields)}"
            raise InvalidInput(f"unknown field '{name}'; {hint}")
        _check_value(name, value, fields[name])
    if not present.get("instruction", "").strip():
        raise InvalidInput("'instruction' is missing or empty; write the task of the agent")
    return {**{name: field["default"] for name, field in fields.items() if "default" in field}, **present}


def _drop_empty(given: Any) -> Any:
    """Return a mapping without null and empty members; also in lists of mappings."""
    if isinstance(given, list):
        return [_drop_empty(each) for each in given]
    if not isinstance(given, dict):
        return given
    return {name: _drop_empty(value) for name, value in given.items() if value not in (None, "")}


def _check_value(name: str, value: Any, field: dict[str, Any]) -> None:
    wanted = _TYPES[field["type"]]
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise InvalidInput(f"'{name}' must be of type {field['type']}, not {type(value).__name__}")
    if "enum" in field and value not in field["enum"]:
        raise InvalidInput(f"'{name}' must be one of {', '.join(field['enum'])}, not '{shorten(str(value))}'")
    if isinstance(value, int) and not field["minimum"] <= value <= field.get("maximum", value):
        most = f" to {field['maximum']}" if "maximum" in field else " on"
        raise InvalidInput(f"'{name}' must be a number from {field['minimum']}{most}, not {value}")
    for position, item in enumerate(value if isinstance(value, list) else ()):
        texts = isinstance(item, dict) and all(isinstance(text, str) for text in item.values())
        if not texts or not {"provider"} <= item.keys() <= {"provider", "model"}:
            where = f"{name}[{position}]"
            raise InvalidInput(f"'{where}' must be an object with a 'provider' and perhaps a 'model', both texts")
