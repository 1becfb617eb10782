"""What the tool takes, as JSON Schema, and the check of an input against it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .failures import InvalidInput, shown

if TYPE_CHECKING:
    from .config import Settings

DEFAULT_TURNS = 5

_TYPES: dict[str, type] = {"string": str, "integer": int, "array": list}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def schema_for(settings: Settings) -> dict[str, Any]:
    """Return the schema of what these settings allow."""
    agent = "Who does it: the name of an agent"
    agent += ", or a bundle: its path, or name:path of a registered one." if settings.bundles else "."
    properties = {"agent": _text(agent), "instruction": _text("The whole task; the agent knows nothing else of it.")}
    if settings.resumes:
        properties["session_id"] = _text("Go on with this session of an earlier call; 'agent' is not needed then.")
    if settings.context:
        properties |= _context(settings.max_turns)
    if settings.preferences:
        properties |= _CHOICES
    return {"type": "object", "properties": properties, "required": ["instruction"], "additionalProperties": False}


def _context(max_turns: int | None) -> dict[str, Any]:
    turns = {"type": "integer", "description": "How many turns 'recent' is.", "minimum": 1, "default": DEFAULT_TURNS}
    if max_turns is not None:
        turns |= {"maximum": max_turns, "default": min(DEFAULT_TURNS, max_turns)}
    return {
        "context_depth": _text(
            "How much of this conversation the agent is told.", enum=["none", "recent", "all"], default="none"
        ),
        "context_scope": _text(
            "Of that: what was said, also what agents answered, or every tool result.",
            enum=["conversation", "agents", "full"],
            default="conversation",
        ),
        "context_turns": turns,
    }


_CHOICES: dict[str, Any] = {
    "provider_preferences": {
        "type": "array",
        "description": "Which provider and model to use; the first that is there.",
        "items": {
            "type": "object",
            "properties": {"provider": {"type": "string"}, "model": {"type": "string"}},
            "required": ["provider"],
            "additionalProperties": False,
        },
    },
    "model_role": _text("What kind of model the task needs, where roles are set up: 'fast', 'reasoning', …"),
}


def check(schema: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return the input with its defaults filled in. Raises `InvalidInput` naming the field.

    A field that is null or empty counts as left out: models write that for what they do not want.
    """
    if not isinstance(given, dict):
        raise InvalidInput(f"the input must be an object, not {type(given).__name__}")
    fields = schema["properties"]
    present = _without_empty(given)
    for name, value in present.items():
        if name not in fields:
            raise InvalidInput(_unknown(str(name), list(fields)))
        _check_value(name, value, fields[name])
    if not present.get("instruction", "").strip():
        raise InvalidInput("'instruction' is missing or empty; say what the agent shall do")
    return {**{name: field["default"] for name, field in fields.items() if "default" in field}, **present}


def _without_empty(given: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in given.items() if value not in (None, "")}
    return {name: _each_without_empty(value) if isinstance(value, list) else value for name, value in kept.items()}


def _each_without_empty(items: list[Any]) -> list[Any]:
    return [_without_empty(item) if isinstance(item, dict) else item for item in items]


def _unknown(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(known)}"
    return f"unknown field '{name}'; {hint}"


def _check_value(name: str, value: Any, field: dict[str, Any]) -> None:
    wanted = _TYPES[field["type"]]
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise InvalidInput(f"'{name}' must be of type {field['type']}, not {type(value).__name__}")
    if "enum" in field and value not in field["enum"]:
        raise InvalidInput(f"'{name}' must be one of {', '.join(field['enum'])}, not '{shown(str(value))}'")
    if isinstance(value, int) and not field["minimum"] <= value <= field.get("maximum", value):
        most = f" to {field['maximum']}" if "maximum" in field else " on"
        raise InvalidInput(f"'{name}' must be a number from {field['minimum']}{most}, not {value}")
    if isinstance(value, list):
        for position, item in enumerate(value):
            _check_preference(f"{name}[{position}]", item)


def _check_preference(where: str, item: Any) -> None:
    texts = isinstance(item, dict) and all(isinstance(text, str) for text in item.values())
    if not texts or not {"provider"} <= item.keys() <= {"provider", "model"}:
        raise InvalidInput(f"'{where}' must be an object with a 'provider' and perhaps a 'model', both texts")
