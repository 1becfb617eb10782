"""Test the listeners of a turn: no event is emitted without one, if the hooks can tell."""

from __future__ import annotations

from typing import Any

from amplifier_core.events import CONTENT_BLOCK_END, PROVIDER_REQUEST, TOOL_POST, TOOL_PRE
from amplifier_core.hooks import HookRegistry
from amplifier_core.models import HookResult

STORY = [
    "prompt:submit",
    "execution:start",
    "provider:request",
    "provider:response",
    "content_block:start",
    "content_block:end",
    "tool:pre",
    "tool:post",
    "provider:request",
    "provider:response",
    "content_block:start",
    "content_block:end",
    "turn:stop",
    "orchestrator:complete",
    "execution:end",
    "prompt:complete",
]


class Silent:
    """Hooks as another kernel may have them: they take events, and say nothing of who listens."""

    def __init__(self) -> None:
        self.registry = HookRegistry()
        self.emitted: list[str] = []

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        self.emitted.append(event)
        return await self.registry.emit(event, data)


class Telling(Silent):
    """Hooks that say who listens."""

    def has_handlers(self, event: str) -> bool:
        return bool(self.registry.list_handlers(event)[event])


async def refuse(event: str, data: dict[str, Any]) -> HookResult:
    return HookResult(action="deny", reason="not today")


async def note(event: str, data: dict[str, Any]) -> None:
    return None


async def test_hooks_that_cannot_say_who_listens_are_told_everything(room: Any) -> None:
    room.tool("read")
    room.hooks = Silent()
    assert await room.run("go", room.calls("read"), "done") == "done"
    assert room.hooks.emitted == STORY


async def test_what_nobody_listens_to_is_not_emitted_and_the_turn_is_the_same(room: Any) -> None:
    room.tool("read")
    room.hooks = Telling()
    assert await room.run("go", room.calls("read"), "done") == "done"
    assert room.hooks.emitted == []
    assert [role for role, _ in room.history()] == ["user", "assistant", "tool", "assistant"]


async def test_one_listener_hears_its_event_alone(room: Any) -> None:
    room.tool("read")
    room.hooks = Telling()
    room.hooks.registry.register(CONTENT_BLOCK_END, note)
    await room.run("go", room.calls("read"), "done")
    assert room.hooks.emitted == [CONTENT_BLOCK_END] * 2


async def test_a_listener_that_comes_in_the_middle_of_a_turn_is_heard_from_then_on(room: Any) -> None:
    async def bring_listeners(input: dict[str, Any]) -> str:
        for event in (TOOL_PRE, TOOL_POST, PROVIDER_REQUEST):
            room.hooks.registry.register(event, note)
        return "they are here"

    room.tool("invite", bring_listeners)
    room.hooks = Telling()
    await room.run("go", room.calls("invite"), "done")
    assert room.hooks.emitted == [TOOL_POST, PROVIDER_REQUEST]


async def test_the_only_listener_may_refuse(room: Any) -> None:
    tool = room.tool("read")
    room.hooks = Telling()
    room.hooks.registry.register(TOOL_PRE, refuse)
    await room.run("go", room.calls("read"), "done")
    assert tool.inputs == []
    assert room.results() == [("1", "Denied by hook: not today")]
