"""Hooks that ask before a tool does what cannot be undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amplifier_core import ApprovalRequest, ApprovalResponse, HookRegistry, HookResult

__amplifier_module_type__ = "hook"


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> Callable[[], None]:
    hooks = coordinator.get("hooks")
    approval = Approval(hooks, (config or {}).get("tools", []))
    coordinator.register_capability("approval.register_provider", approval.register_provider)
    return hooks.register("tool:pre", approval.handle, priority=-10, name="approval")


class Approval:
    def __init__(self, hooks: HookRegistry, tools: list[str]) -> None:
        self.hooks = hooks
        self.tools = tools
        self.provider: Any = None

    def register_provider(self, provider: Any) -> None:
        self.provider = provider

    async def handle(self, event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] not in self.tools:
            return HookResult(action="continue")
        request = ApprovalRequest(
            tool_name=data["tool_name"],
            action=f"run {data['tool_name']}",
            details=dict(data["tool_input"]),
            risk_level="high",
            timeout=30.0,
        )
        await self.hooks.emit("approval:required", request.model_dump())
        response = await self._answer(request)
        told = {"tool_name": request.tool_name, "reason": response.reason}
        if response.approved:
            await self.hooks.emit("approval:granted", told)
            return HookResult(action="continue")
        await self.hooks.emit("approval:denied", told)
        return HookResult(action="deny", reason=response.reason or "not approved")

    async def _answer(self, request: ApprovalRequest) -> ApprovalResponse:
        if self.provider is None:
            return ApprovalResponse(approved=False, reason="nobody can be asked")
        return await self.provider.request_approval(request)
