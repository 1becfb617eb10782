"""Watch the tool calls of a session, and deny those that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core import HookResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "hook"


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Listen to `tool:pre`; return the function that ends it."""
    denied = set((config or {}).get("deny", ()))

    async def on_tool(event: str, data: dict[str, Any]) -> HookResult:
        if data.get("tool_name") in denied:
            return HookResult(action="deny", reason=f"hooks-example denies {data['tool_name']}")
        return HookResult()

    return coordinator.hooks.register("tool:pre", on_tool, name="hooks-example")
