"""Offer a provider for the tests of orchestrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..message_models import ChatResponse, TextBlock
from ..models import ModelInfo, ProviderInfo

if TYPE_CHECKING:
    from ..message_models import ChatRequest, ToolCall


class AnsweringProvider:
    """Gives the same text for every answer, and calls no tool."""

    name = "default"

    def __init__(self, answer: str = "Mock response") -> None:
        self.answer = answer

    def get_info(self) -> ProviderInfo:
        """Return the provider's description."""
        return ProviderInfo(id=self.name, display_name="Test provider")

    async def list_models(self) -> list[ModelInfo]:
        """Return its one model."""
        return [ModelInfo(id="test", display_name="Test model", context_window=100_000, max_output_tokens=10_000)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Return the answer."""
        return ChatResponse(content=[TextBlock(text=self.answer)])

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls of `response`: none of its own."""
        return list(response.tool_calls or ())
