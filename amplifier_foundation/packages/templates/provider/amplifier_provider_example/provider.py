"""The provider."""

from __future__ import annotations

from typing import Any

from amplifier_core import ChatRequest, ChatResponse, ModelInfo, ProviderInfo, TextBlock, ToolCall, Usage


class ExampleProvider:
    """Answers with the last message."""

    name = "example"

    def get_info(self) -> ProviderInfo:
        """Describe the provider."""
        return ProviderInfo(id=self.name, display_name="example", capabilities=["tools"])

    async def list_models(self) -> list[ModelInfo]:
        """Return the models on offer."""
        return [ModelInfo(id="echo", display_name="Echo", context_window=100_000, max_output_tokens=4_096)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Return the answer. Raise an `LLMError` of `amplifier_core` when the service fails."""
        content = request.messages[-1].content
        text = content if isinstance(content, str) else "".join(getattr(block, "text", "") for block in content)
        usage = Usage(input_tokens=len(text), output_tokens=len(text), total_tokens=2 * len(text))
        return ChatResponse(content=[TextBlock(text=text)], usage=usage, finish_reason="stop")

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls of a response."""
        return list(response.tool_calls or [])
