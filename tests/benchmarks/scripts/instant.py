"""Modules that take no time, written for the published contract: they mount on either kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.loader import ModuleLoader
from amplifier_core.message_models import ChatRequest, ChatResponse, TextBlock, ToolCall, ToolCallBlock
from amplifier_core.models import ProviderInfo, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT, ANSWER = "one and two", "3"


class InstantProvider:
    """Calls the tool once, then answers; it takes no time to think."""

    __slots__ = ()

    name = "instant"
    call = ToolCall(id="call_1", name="add", arguments={"a": 1, "b": 2})
    calling = ChatResponse(content=[ToolCallBlock(id=call.id, name=call.name, input=call.arguments)], tool_calls=[call])
    answering = ChatResponse(content=[TextBlock(text=ANSWER)])

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name="Instant")

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        return self.calling if request.messages[-1].role == "user" else self.answering

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return list(response.tool_calls or ())


class Adder:
    """A tool that takes no time."""

    name = "add"
    description = "Add two numbers."

    def __init__(self) -> None:
        number = {"type": "number"}
        self.input_schema = {"type": "object", "properties": {"a": number, "b": number}}

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(output=input["a"] + input["b"])


class Echo:
    """The least that a loop can be."""

    __slots__ = ()

    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any, **kwargs: Any) -> str:
        return prompt


class Messages:
    """The least that a context can be."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self.messages)

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> Any:
        return list(self.messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        self.messages = list(messages)

    async def clear(self) -> None:
        self.messages = []


async def mount_echo(coordinator: Any, config: dict[str, Any]) -> None:
    await coordinator.mount("orchestrator", Echo())


async def mount_messages(coordinator: Any, config: dict[str, Any]) -> None:
    await coordinator.mount("context", Messages())


async def mount_provider(coordinator: Any, config: dict[str, Any]) -> None:
    await coordinator.mount("providers", InstantProvider(), name="instant")


async def mount_adder(coordinator: Any, config: dict[str, Any]) -> None:
    await coordinator.mount("tools", Adder(), name="add")


class ResolvedLoader(ModuleLoader):
    """A loader that has found its modules already."""

    def __init__(self, mounts: dict[str, Callable[..., Any]]) -> None:
        super().__init__()
        self._mounts = mounts

    async def load(
        self, module_id: str, config: Any = None, source_hint: Any = None, coordinator: Any = None
    ) -> Callable[[Any], Any]:
        found = self._mounts[module_id]

        async def mount(target: Any) -> Any:
            return await found(target, config or {})

        return mount
