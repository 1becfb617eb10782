"""Derive the form of a payload from what a background session reads of its events, and read the filled form."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from amplifier_core.conditions import Condition
from amplifier_core.errors import AmplifierError
from amplifier_core.frozen import frozen
from amplifier_core.json_values import to_json
from amplifier_foundation.bundle.templates import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_foundation.bundle.background_config import BackgroundSessionConfig
    from amplifier_foundation.bundle.model import Bundle

FIELD = "field:"
"""What the names of inputs begin with; the path of a value follows."""
REST = "rest"
"""The input with the rest of the payload, as JSON."""
_IN_TEMPLATE = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*(?:\.\w[\w-]*)*)\}", re.ASCII)
_WITH_NUMBER = re.compile(r"data\.([\w.]+)\s*(?:==|!=|<=?|>=?)\s*-?\d")


class InvalidPayload(AmplifierError, ValueError):
    """A form makes no payload."""


@frozen
class Field:
    """One value of a payload at a dotted path; `reads` says what reads it."""

    path: str
    reads: str
    is_number: bool = False
    default: Any = None
    """The value of an empty field; None: the payload is without it."""

    def read(self, text: str) -> Any:
        """Return the value of a filled input. Raises `InvalidPayload`."""
        if isinstance(self.default, (list, dict, bool)):
            return _parse(self.path, text)
        if not self.is_number:
            return text
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidPayload(f"{self.path}: '{text}' is not a number")
        return value


def find_fields(session: BackgroundSessionConfig, bundle: Bundle) -> list[Field]:
    """Return the fields that the templates, the condition and the workflow of a background session read."""
    fields: dict[str, Field] = {}
    numbers = set(_WITH_NUMBER.findall(session.condition or ""))
    for path, reads in _find_paths(session):
        fields.setdefault(path, Field(path, reads, path in numbers))
    for name, default in _find_input(session, bundle).items():
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        fields[name] = Field(name, "the workflow", is_number, default)
    return [each for path, each in fields.items() if not any(other.startswith(f"{path}.") for other in fields)]


def _find_paths(session: BackgroundSessionConfig) -> Iterator[tuple[str, str]]:
    templates = [("the instruction", session.instruction_template), ("the key", session.key)]
    templates += [("the instruction", each.instruction_template) for each in session.triggers]
    for reads, template in templates:
        for match in _IN_TEMPLATE.finditer(template or ""):
            name = (match[1] or "data").removeprefix("data.")
            if name.partition(".")[0] not in ALWAYS:
                yield name, reads
    if session.condition is not None:
        for path in Condition.parse(session.condition).paths():
            if path.startswith("data."):
                yield path.removeprefix("data."), "the condition"


def _find_input(session: BackgroundSessionConfig, bundle: Bundle) -> Mapping[str, Any]:
    """Return the usual input of the workflow that is run for an event."""
    declared = (bundle.workflows or {}).get(session.workflow) if session.workflow and not session.bundle else None
    usual = declared.get("input") if isinstance(declared, dict) else None
    return usual if isinstance(usual, dict) else {}


def read_payload(fields: Sequence[Field], form: Mapping[str, str]) -> dict[str, Any]:
    """Return the payload of a filled form; the JSON of the rest wins over fields. Raises `InvalidPayload`."""
    payload: dict[str, Any] = {}
    for each in fields:
        text = form.get(f"{FIELD}{each.path}", "")
        if text:
            _put(payload, each.path.split("."), each.read(text))
    rest = form.get(REST, "").strip()
    more = _parse("more data", rest) if rest else {}
    if not isinstance(more, dict):
        raise InvalidPayload('more data: write a JSON object, such as {"path": "a.py"}')
    return {**payload, **more}


def _put(payload: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *outer, last = path
    for name in outer:
        payload = payload.setdefault(name, {})
    payload[last] = value


def _parse(name: str, text: str) -> Any:
    try:
        value = json.loads(text)
        to_json(value, name)
    except json.JSONDecodeError as error:
        raise InvalidPayload(f"{name}: not JSON in line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"{name}: not JSON: {error}") from None
    return value
