"""Emit events for an agent, within the limits of the configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from amplifier_core.json_values import to_json
from amplifier_core.models import ToolResult
from amplifier_core.own_events import is_own_event

from .config import NAME, EmitConfig

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")


class EmitError(Exception):
    """A call fails; programs compare `type`, the text says what to do."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        super().__init__(message)


class EmitTool:
    """Emits events; a failed call is a result with an error, never an exception."""

    name = "emit"
    description = "Emit an event with some data. It wakes other sessions that wait for it."
    accesses: ClassVar = {"name": "event"}
    """The permissions of a session are about the event's name."""

    def __init__(self, coordinator: ModuleCoordinator, config: EmitConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        allowed = f" It begins with one of: {', '.join(config.allow)}." if config.allow else ""
        name = {"type": "string", "description": f"The event's name, such as work:done.{allowed}", "minLength": 1}
        self.input_schema = {
            "type": "object",
            "properties": {
                "name": name,
                "data": {"type": "object", "description": "The event's data, as JSON.", "default": {}},
            },
            "required": ["name"],
            "additionalProperties": False,
        }

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Emit the event; the `error` of a failed call has a `message` and a `type`."""
        try:
            name, data = self._read_input(input)
            emit = self._coordinator.get_capability("event.emit")
            if emit is None:
                raise EmitError("Unavailable", "this session has no event router, so nobody would get the event")
            call = self._coordinator.get_capability("tool.call")
            key = ((call() or {}) if call is not None else {}).get("idempotency_key")
            await (emit(name, data, event_id=key) if key else emit(name, data))
        except EmitError as failure:
            return ToolResult(success=False, error={"message": str(failure), "type": failure.type})
        except Exception as error:
            message = f"'{name}' was not emitted: {error}"
            return ToolResult(success=False, error={"message": message, "type": type(error).__name__})
        return ToolResult(output={"emitted": name})

    def _read_input(self, given: Any) -> tuple[str, dict[str, Any]]:
        """Return the name and the data. Raises `EmitError`."""
        if not isinstance(given, dict):
            raise EmitError("InvalidInput", f"the input must be an object, not {type(given).__name__}")
        unknown = [str(key) for key in given if key not in ("name", "data")]
        if unknown:
            raise EmitError("InvalidInput", f"unknown field '{unknown[0]}'; known are name, data")
        name, data = given.get("name"), given.get("data")
        self._check_name(name)
        if data is not None and not isinstance(data, dict):
            raise EmitError("InvalidInput", f"'data' must be an object, not {type(data).__name__}")
        self._check_size(data or {})
        return str(name), data or {}

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise EmitError("InvalidInput", "'name' must be 1 to 128 letters, digits or _ . : / -, such as work:done")
        if is_own_event(name):
            raise EmitError("ReservedName", f"'{name}' is an event of the program itself; choose another name")
        allowed = self._config.allow
        if allowed is not None and not name.startswith(tuple(allowed)):
            known = ", ".join(allowed) or "nothing"
            remedy = f"the bundle may add it to `allow` in the config of {NAME}"
            raise EmitError("NotAllowed", f"'{name}' is not allowed here; names may begin with: {known}; {remedy}")

    def _check_size(self, data: dict[str, Any]) -> None:
        try:
            size = len(to_json(data, "data").encode("utf-8"))
        except (TypeError, ValueError) as error:
            raise EmitError("InvalidInput", f"the data cannot be stored: {error}") from None
        if size > self._config.max_bytes:
            raise EmitError("TooLarge", f"the data is {size} bytes, more than the {self._config.max_bytes} allowed")
