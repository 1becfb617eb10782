"""Count the words of a text for agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core import ToolResult

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "tool"


class ExampleTool:
    """A tool with one argument."""

    name = "example"
    description = "Count the words of a text."

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Return the number of words; a wrong argument is a failed result, never an exception."""
        text = input.get("text")
        if not isinstance(text, str):
            return ToolResult(success=False, error={"message": "'text' must be a text"})
        return ToolResult(output={"words": len(text.split())})


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the tool into a session."""
    if config:
        raise ValueError(f"tool-example: {next(iter(config))}: unknown key; none is known")
    await coordinator.mount("tools", ExampleTool())
