"""A tool that keeps a list of what is left to do, where other modules of the session can see it."""

from __future__ import annotations

from typing import Any

from amplifier_core import ModuleCoordinator, ToolResult

__amplifier_module_type__ = "tool"


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    coordinator.todo_state = []
    coordinator.cancellation.on_cancel(_forget_on_cancel(coordinator))
    await coordinator.mount("tools", TodoTool(coordinator), name="todo")


def _forget_on_cancel(coordinator: ModuleCoordinator) -> Any:
    async def forget() -> None:
        coordinator.todo_state = []

    return forget


class TodoTool:
    name = "todo"
    description = "Add to the list, or read it."

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator

    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"add": {"type": "string"}}}

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        if "add" in input:
            self.coordinator.todo_state.append({"content": input["add"], "status": "pending"})
        return ToolResult(
            output={"todos": list(self.coordinator.todo_state), "beside": len(self.coordinator._tool_dispatch_contexts)}
        )
