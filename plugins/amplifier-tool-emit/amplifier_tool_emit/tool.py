"""The tool as a session mounts it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from amplifier_core.events import ALL_EVENTS
from amplifier_core.models import ToolResult
from amplifier_core.storable import to_json

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

    from .config import Settings

RESERVED = ("session:", "trigger:", "background:")
"""Beginnings of the names that tell what became of sessions; nobody else may say that."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")


class Failure(Exception):
    """A call that cannot be done; `type` is the word a program compares, the text says what to do."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        super().__init__(message)


class EmitTool:
    """Emits an event. A call that cannot be done is a result that says why, never an exception."""

    name = "emit"
    description = "Emit an event with some data. Other sessions may be waiting for it, and are woken by it."

    def __init__(self, coordinator: ModuleCoordinator, settings: Settings) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self.input_schema = _schema(settings)

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Emit the event; on failure `error` has a `message` and a `type`."""
        try:
            name, data = self._checked(input)
            emit = self._coordinator.get_capability("event.emit")
            if emit is None:
                raise Failure("Unavailable", "this session has nobody to tell: it was not started with an event router")
            await emit(name, data)
        except Failure as failure:
            return _failed(failure.type, str(failure))
        except Exception as error:
            return _failed(type(error).__name__, f"'{name}' was not emitted: {error}")
        return ToolResult(output={"emitted": name})

    def _checked(self, given: Any) -> tuple[str, dict[str, Any]]:
        """Return the name and the data. Raises `Failure`."""
        if not isinstance(given, dict):
            raise Failure("InvalidInput", f"the input must be an object, not {type(given).__name__}")
        unknown = [str(key) for key in given if key not in ("name", "data")]
        if unknown:
            raise Failure("InvalidInput", f"unknown field '{unknown[0]}'; there are: name, data")
        name, data = given.get("name"), given.get("data")
        self._check_name(name)
        if data is not None and not isinstance(data, dict):
            raise Failure("InvalidInput", f"'data' must be an object, not {type(data).__name__}")
        self._check_size(data or {})
        return str(name), data or {}

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Failure("InvalidInput", "'name' must be 1 to 128 letters, digits or _ . : / -, such as work:done")
        if name.startswith(RESERVED) or name in ALL_EVENTS:
            raise Failure("ReservedName", f"'{name}' is a name that the program itself emits; choose another one")
        if not self._settings.allows(name):
            allowed = ", ".join(self._settings.allow or ()) or "nothing"
            raise Failure("NotAllowed", f"'{name}' may not be emitted here; names may begin with: {allowed}")

    def _check_size(self, data: dict[str, Any]) -> None:
        try:
            size = len(to_json(data, "data").encode("utf-8"))
        except (TypeError, ValueError) as error:
            raise Failure("InvalidInput", f"the data cannot be stored: {error}") from None
        if size > self._settings.max_bytes:
            raise Failure("TooLarge", f"the data is {size} bytes, more than the {self._settings.max_bytes} allowed")


def _schema(settings: Settings) -> dict[str, Any]:
    allowed = f" It begins with one of: {', '.join(settings.allow)}." if settings.allow else ""
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": f"The event's name, such as work:done.{allowed}", "minLength": 1},
            "data": {"type": "object", "description": "What the event says, as JSON.", "default": {}},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def _failed(type: str, message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message, "type": type})
