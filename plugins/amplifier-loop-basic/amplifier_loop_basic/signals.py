"""Emit events to the session's hooks, and carry out their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.models import ContextInjection, HookResult

from .config import NAME
from .contents import add_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from amplifier_core import HookRegistry, ModuleCoordinator

_UNHEARD = HookResult.model_construct()
"""The result without a listener; no schema is built for it."""


class _Everything:
    """The events of hooks that do not say what is heard, as another kernel's."""

    def __contains__(self, event: object) -> bool:
        return True


class _Asked:
    """The events of hooks that are asked one by one."""

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def __contains__(self, event: object) -> bool:
        return bool(self._hooks.has_handlers(event))


def find_heard(hooks: Any) -> Container[str]:
    """Return the events with a listener, now and later."""
    heard: Container[str] | None = getattr(hooks, "heard", None)
    if heard is not None:
        return heard
    return _Asked(hooks) if hasattr(hooks, "has_handlers") else _Everything()


class Signals:
    """The hooks of one turn, and their injections for its next request only."""

    def __init__(self, hooks: HookRegistry, coordinator: ModuleCoordinator | None, module: str = NAME) -> None:
        self.module = module
        self._hooks = hooks
        self.heard = find_heard(hooks)
        """The events with a listener: to emit another one only costs time."""
        self._tell: Callable[[str, dict[str, Any]], bool] | None = getattr(hooks, "tell", None)
        """Tells an event that nobody can answer; None with another kernel."""
        self._coordinator = coordinator
        self._ephemeral: list[ContextInjection] = []
        self.postponed: list[tuple[str, HookResult]] = []
        """The injections for `settle`."""

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        """Emit `event`, carry out the hooks' result, and return the final one."""
        if event not in self.heard or (self._tell is not None and self._tell(event, data)):
            return _UNHEARD
        result = await self._hooks.emit(event, data)
        if result.action == "continue" and not result.user_message:
            return result
        return await self._process(event, result)

    async def emit_around_tool(self, event: str, data: dict[str, Any]) -> HookResult:
        """Emit like `emit`, with injections postponed to `settle`: nothing may come between a call and its result."""
        if event not in self.heard:
            return _UNHEARD
        result = await self._hooks.emit(event, data)
        if result.action == "inject_context":
            self.postponed.append((event, result))
            return result
        if result.action == "continue" and not result.user_message:
            return result
        return await self._process(event, result)

    async def settle(self) -> None:
        """Carry out postponed injections."""
        postponed, self.postponed = self.postponed, []
        for event, result in postponed:
            await self._process(event, result)

    def take_postponed(self) -> str:
        """Return the text of the postponed injections, and forget them: no message follows an open call."""
        postponed, self.postponed = self.postponed, []
        return "\n\n".join(text for _, result in postponed if (text := result.context_injection))

    async def _process(self, event: str, result: HookResult) -> HookResult:
        if result.action == "inject_context":
            injections = result.context_injections or [
                ContextInjection(
                    content=result.context_injection or "",
                    role=result.context_injection_role,
                    ephemeral=result.ephemeral,
                    append_to_last_tool_result=result.append_to_last_tool_result,
                    event=event,
                )
            ]
            self._ephemeral.extend(each for each in injections if each.ephemeral or self._coordinator is None)
        if self._coordinator is not None:
            return await self._coordinator.process_hook_result(result, event, self.module)
        if result.action == "ask_user":
            return HookResult(action="deny", reason="nobody can be asked for approval here")
        return result

    def inject(self, text: str) -> None:
        """Add a message of the user to the next request, and to no other."""
        self._ephemeral.append(ContextInjection(content=text, role="user", ephemeral=True))

    def with_injections(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return `messages` with the injections for one request, and forget those."""
        if not self._ephemeral:
            return messages
        injections, self._ephemeral = self._ephemeral, []
        messages = list(messages)
        for each in injections:
            last = messages[-1] if messages else {}
            if each.append_to_last_tool_result and last.get("role") == "tool":
                messages[-1] = {**last, "content": add_text(last["content"], each.content)}
            else:
                messages.append({"role": each.role, "content": each.content})
        return messages


def read_change(result: HookResult, key: str, original: Any) -> Any:
    """Return the value of `key` in the event's data after changes of the hooks; `original` without one."""
    return original if result.data is None else result.data.get(key, original)


def read_prompt(result: HookResult, original: str) -> str:
    """Return the prompt after changes of the hooks. Raises `TypeError` for one that is not text: nothing stores it."""
    prompt = read_change(result, "prompt", original)
    if not isinstance(prompt, str):
        raise TypeError(f"a hook changed the prompt to {type(prompt).__name__}: it must be text")
    return prompt
