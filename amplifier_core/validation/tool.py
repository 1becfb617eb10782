"""Validate tools: their descriptions for a model, and their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .validator import ModuleValidator, check_complete, check_method, record_absence

if TYPE_CHECKING:
    from ..testing import MockCoordinator
    from .base import ValidationResult

PROTOCOL = ("name", "description", "execute")


class ToolValidator(ModuleValidator):
    """Validates a module of tools; none is executed."""

    module_type: ClassVar[str] = "tool"

    def check_mounted(self, result: ValidationResult, coordinator: MockCoordinator) -> None:
        """Record whether each tool keeps the protocol."""
        tools = coordinator.get("tools")
        if not tools:
            record_absence(result, "tool", '"tools", tool, name="…"')
        for name, tool in tools.items():
            if check_complete(result, f"tool '{name}'", tool, PROTOCOL):
                _check(result, f"tool '{name}'", tool)


def _check(result: ValidationResult, title: str, tool: Any) -> None:
    name, description, schema = tool.name, tool.description, getattr(tool, "input_schema", {})
    good, bad = f"{title} is named {name!r}", f"{title}: name must be a text that is not empty, not {name!r}"
    result.record("tool_name", isinstance(name, str) and bool(name), good, bad)
    told = isinstance(description, str) and bool(description.strip())
    bad = f"{title}: description must be a text that is not empty: a model chooses the tool by it"
    result.record("tool_description", told, f"{title} has a description", bad, "warning")
    good = f"{title}: input_schema is a dict"
    bad = f"{title}: input_schema must be a dict (JSON Schema), not {type(schema).__name__}"
    result.record("tool_input_schema", isinstance(schema, dict), good, bad, "warning")
    check_method(result, "tool_execute", f"{title}: execute()", tool.execute, "input")
