"""Put the loop into a session: the kernel's coordinator and hooks, a scripted model, and a record of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.events import ALL_EVENTS
from amplifier_core.message_models import ChatRequest, ChatResponse, TextBlock, ToolCall, ToolCallBlock
from amplifier_core.models import HookResult, ToolResult
from amplifier_core.testing import MockContextManager
from amplifier_loop_basic import mount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class ScriptedModel:
    """A provider that answers from a list: texts, responses, errors to raise, or coroutine functions to await."""

    def __init__(self, name: str = "model", script: tuple[Any, ...] = (), **attributes: Any) -> None:
        self.name = name
        self.script = list(script)
        self.requests: list[ChatRequest] = []
        vars(self).update(attributes)

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        self.requests.append(request)
        answer = self.script.pop(0)
        if callable(answer):
            answer = await answer()
        if isinstance(answer, BaseException):
            raise answer
        return ChatResponse(content=[TextBlock(text=answer)]) if isinstance(answer, str) else answer

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []


class FunctionTool:
    """A tool made of a coroutine function."""

    def __init__(self, name: str, function: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        self.name = name
        self.description = f"{name} it"
        self.input_schema = {"type": "object", "properties": {"value": {"type": "string"}}}
        self.function = function
        self.inputs: list[dict[str, Any]] = []

    async def execute(self, input: dict[str, Any]) -> Any:
        self.inputs.append(input)
        return await self.function(input)


class Room:
    """One session's parts, and shorthands for what the tests do with them."""

    mount = staticmethod(mount)
    module = "loop-basic"

    def __init__(self) -> None:
        self.coordinator = ModuleCoordinator(session_id="s")
        self.hooks = self.coordinator.hooks
        self.context = MockContextManager()
        self.model = ScriptedModel()
        self.tools: dict[str, FunctionTool] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        for event in ALL_EVENTS:
            self.hooks.register(event, self._record, priority=-1000)

    async def _record(self, event: str, data: dict[str, Any]) -> HookResult:
        self.events.append((event, data))
        return HookResult()

    def names(self, *prefixes: str) -> list[str]:
        """Return the names of the events so far; with prefixes, of those only."""
        return [name for name, _ in self.events if not prefixes or name.startswith(prefixes)]

    def data(self, event: str) -> list[dict[str, Any]]:
        """Return the data of each `event`."""
        return [data for name, data in self.events if name == event]

    def tool(self, name: str, function: Callable[[dict[str, Any]], Awaitable[Any]] | None = None) -> FunctionTool:
        """Mount a tool; without a function it returns its own name."""

        async def say_name(input: dict[str, Any]) -> ToolResult:
            return ToolResult(output=name)

        self.tools[name] = FunctionTool(name, function or say_name)
        return self.tools[name]

    def calls(self, *names: str) -> ChatResponse:
        """Return a response that calls these tools, with the ids "1", "2" …"""
        calls = [ToolCall(id=str(index), name=name, arguments={"n": index}) for index, name in enumerate(names, 1)]
        blocks = [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
        return ChatResponse(content=list(blocks), tool_calls=calls)

    def on(self, event: str, **result: Any) -> None:
        """Register a hook that answers `event` with this result."""

        async def answer(name: str, data: dict[str, Any]) -> HookResult:
            return HookResult(**result)

        self.hooks.register(event, answer)

    async def run(self, prompt: str = "go", *script: Any, config: dict[str, Any] | None = None, **kwargs: Any) -> str:
        """Run one turn in which the model answers from `script`."""
        self.model.script = list(script)
        if self.coordinator.get("orchestrator") is None or config is not None:
            self.coordinator.mount_points["context"] = self.context
            await self.mount(self.coordinator, config)
        kwargs = {"providers": {"model": self.model}, "coordinator": self.coordinator, **kwargs}
        text: str = await self.coordinator.get("orchestrator").execute(
            prompt=prompt, context=self.context, tools=self.tools, hooks=self.hooks, **kwargs
        )
        return text

    def history(self) -> list[tuple[str, Any]]:
        """Return role and content of every message."""
        return [(message["role"], message["content"]) for message in self.context.messages]

    def results(self) -> list[tuple[str, str]]:
        """Return id and content of every tool result."""
        return [(each["tool_call_id"], each["content"]) for each in self.context.messages if each["role"] == "tool"]


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def scripted() -> type[ScriptedModel]:
    return ScriptedModel
