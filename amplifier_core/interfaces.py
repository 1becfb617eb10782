"""Define the protocols of modules: orchestrator, provider, tool, context and hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import BaseModel, Field

from .contracts import Contract
from .message_models import ChatRequest, ChatResponse, ToolCall
from .models import HookResult, ModelInfo, ProviderInfo, ToolResult

if TYPE_CHECKING:
    from .hooks import HookRegistry

__all__ = [
    "ApprovalProvider",
    "ApprovalRequest",
    "ApprovalResponse",
    "ChatRequest",
    "ChatResponse",
    "ContextManager",
    "HookHandler",
    "HookResult",
    "ModelInfo",
    "Orchestrator",
    "Provider",
    "ProviderInfo",
    "Tool",
    "ToolCall",
    "ToolResult",
]


class Orchestrator(Protocol):
    """The loop between model and tools."""

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        **kwargs: Any,
    ) -> str:
        """Run one turn and return its final text; the session passes `coordinator=` too.

        Emits `execution:start`, `execution:end` and `orchestrator:complete`.
        """
        ...


@runtime_checkable
class Provider(Protocol, metaclass=Contract):
    """A way to a model."""

    @property
    def name(self) -> str:
        """Return the default name of its mount."""
        ...

    def get_info(self) -> ProviderInfo:
        """Return the provider's description."""
        ...

    async def list_models(self) -> list[ModelInfo]:
        """Return the models on offer."""
        ...

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Return the model's answer; raises an `LLMError`.

        A provider that streams emits the events of `amplifier_core.streaming` meanwhile, on the hooks of the
        coordinator that mounted it. Cancelled, it closes its connection at once and raises `CancelledError`.
        """
        ...

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls in `response`."""
        ...


class Tool(Protocol):
    """A function for a model to call."""

    @property
    def name(self) -> str:
        """Return the name that the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """Return its description for the model."""
        ...

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its input; by default anything is accepted."""
        return {}

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Do the work; a failure is a result with `success=False`."""
        ...


@runtime_checkable
class ContextManager(Protocol, metaclass=Contract):
    """The memory of a session: an ordered list of messages, each a plain dict.

    With `async def set_system_prompt_factory(factory)`, it gets a function that makes the system prompt of each
    request; without, the system prompt of a bundle is one of its messages. A recorder stores the messages for
    `add_message`, and those behind the last known one for `set_messages`; of messages merely shown, it stores none.
    """

    async def add_message(self, message: dict[str, Any]) -> None:
        """Append `message`."""
        ...

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """Return the messages for the next request, within `token_budget` tokens if possible."""
        ...

    async def get_messages(self) -> list[dict[str, Any]]:
        """Return every message."""
        ...

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Replace every message."""
        ...

    async def clear(self) -> None:
        """Forget every message."""
        ...


@runtime_checkable
class HookHandler(Protocol, metaclass=Contract):
    """Handles an event of a session."""

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        """Observe `event`, and return the next action."""
        ...


class ApprovalRequest(BaseModel):
    """A question to the user about one action; `timeout` is in seconds, None waits for ever."""

    tool_name: str
    action: str
    details: dict[str, Any] = Field(default_factory=dict)
    risk_level: str
    timeout: float | None = None

    def model_post_init(self, context: Any, /) -> None:
        """Refuse a timeout of zero or less. Raises `ValueError`."""
        if self.timeout is not None and self.timeout <= 0:
            raise ValueError(f"timeout must be positive, or None to wait for ever: {self.timeout}")


class ApprovalResponse(BaseModel):
    """The user's answer; `remember` applies it to the next questions of this kind."""

    approved: bool
    reason: str | None = None
    remember: bool = False


@runtime_checkable
class ApprovalProvider(Protocol, metaclass=Contract):
    """Answers an `ApprovalRequest`."""

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        """Return the answer to `request`."""
        ...
