"""The session's hooks as the loop sees them: tell them, and do what they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.models import ContextInjection, HookResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import HookRegistry, ModuleCoordinator

MODULE = "loop-basic"

_UNHEARD = HookResult()
"""What stands when nobody listens."""


class Signals:
    """The hooks of one turn, and the injections that only its next request shall carry."""

    def __init__(self, hooks: HookRegistry, coordinator: ModuleCoordinator | None) -> None:
        self._hooks = hooks
        self.is_heard: Callable[[str], bool] = getattr(hooks, "has_handlers", _always)
        """Whether anybody listens to an event; hooks that cannot say are told everything."""
        self._coordinator = coordinator
        self._ephemeral: list[ContextInjection] = []
        self._postponed: list[tuple[str, HookResult]] = []

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        """Emit `event`, do what the hooks ask for, and return what stands then."""
        if not self.is_heard(event):
            return _UNHEARD
        result = await self._hooks.emit(event, data)
        if result.action == "continue" and not result.user_message:
            return result
        return await self._process(event, result)

    async def emit_around_tool(self, event: str, data: dict[str, Any]) -> HookResult:
        """Emit like `emit`, but let injections wait for `settle`: nothing may stand between a call and its result."""
        if not self.is_heard(event):
            return _UNHEARD
        result = await self._hooks.emit(event, data)
        if result.action == "inject_context":
            self._postponed.append((event, result))
            return result
        if result.action == "continue" and not result.user_message:
            return result
        return await self._process(event, result)

    async def settle(self) -> None:
        """Do what waited."""
        postponed, self._postponed = self._postponed, []
        for event, result in postponed:
            await self._process(event, result)

    async def _process(self, event: str, result: HookResult) -> HookResult:
        if result.action == "inject_context":
            self._ephemeral.extend(
                each for each in _injections(event, result) if each.ephemeral or self._coordinator is None
            )
        if self._coordinator is not None:
            return await self._coordinator.process_hook_result(result, event, MODULE)
        if result.action == "ask_user":
            return HookResult(action="deny", reason="nobody can be asked for approval here")
        return result

    def with_injections(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return `messages` with what hooks injected for one request, and forget that."""
        if not self._ephemeral:
            return messages
        injections, self._ephemeral = self._ephemeral, []
        messages = list(messages)
        for each in injections:
            last = messages[-1] if messages else {}
            if each.append_to_last_tool_result and last.get("role") == "tool":
                messages[-1] = {**last, "content": f"{last['content']}\n\n{each.content}"}
            else:
                messages.append({"role": each.role, "content": each.content})
        return messages


def _always(event: str) -> bool:
    return True


def _injections(event: str, result: HookResult) -> list[ContextInjection]:
    return result.context_injections or [
        ContextInjection(
            content=result.context_injection or "",
            role=result.context_injection_role,
            ephemeral=result.ephemeral,
            append_to_last_tool_result=result.append_to_last_tool_result,
            event=event,
        )
    ]


def changed(result: HookResult, key: str, original: Any) -> Any:
    """Return what the hooks made of `original`, the value of `key` in the event's data."""
    return original if result.data is None else result.data.get(key, original)
