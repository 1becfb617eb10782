"""What a session and a model say to each other: messages, requests and responses, as they go over the wire.

Every model takes fields that it does not know and gives them back: a provider may carry more than is named here.
"""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - pydantic reads the annotations at run time
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

Visibility = Literal["internal", "developer", "user"]


class _WireModel(BaseModel):
    model_config = ConfigDict(extra="allow")


def decimal_or_error(value: Any) -> Any:
    """Return `value` unless it is a float: money that was a binary fraction once is wrong for good."""
    if isinstance(value, float):
        raise ValueError(f"cost_usd must not be a float ({value!r}); pass a Decimal or a string")
    return value


class TextBlock(_WireModel):
    """Text that is meant to be read."""

    type: Literal["text"] = "text"
    text: str
    visibility: Visibility | None = None


class ThinkingBlock(_WireModel):
    """A model's thinking; `signature` proves to its provider that it was not altered."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str | None = None
    visibility: Visibility | None = None
    content: list[Any] | None = None


class RedactedThinkingBlock(_WireModel):
    """Thinking that only its provider can read; it is handed back as it came."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str
    visibility: Visibility | None = None


class ToolCallBlock(_WireModel):
    """The wish of a model to have a tool called."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    input: dict[str, Any]
    visibility: Visibility | None = None


class ToolResultBlock(_WireModel):
    """What the tool call `tool_call_id` returned."""

    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    output: Any
    visibility: Visibility | None = None


class ImageBlock(_WireModel):
    """An image; `source` says where its bytes are, or holds them."""

    type: Literal["image"] = "image"
    source: dict[str, Any]
    visibility: Visibility | None = None


class ReasoningBlock(_WireModel):
    """A model's reasoning in the form of the providers that keep a summary of it."""

    type: Literal["reasoning"] = "reasoning"
    content: list[Any]
    summary: list[Any]
    visibility: Visibility | None = None


ContentBlockUnion = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolCallBlock | ToolResultBlock | ImageBlock | ReasoningBlock,
    Field(discriminator="type"),
]


class Message(_WireModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "function", "tool"]
    content: str | list[ContentBlockUnion]
    name: str | None = None
    tool_call_id: str | None = None
    metadata: dict[str, Any] | None = None


class ToolSpec(_WireModel):
    """A tool as a model sees it; `parameters` is a JSON Schema."""

    name: str
    parameters: dict[str, Any]
    description: str | None = None


class ResponseFormatText(_WireModel):
    """Ask for text."""

    type: Literal["text"] = "text"


class ResponseFormatJson(_WireModel):
    """Ask for JSON of any shape."""

    type: Literal["json"] = "json"


class ResponseFormatJsonSchema(_WireModel):
    """Ask for JSON of the shape `json_schema`."""

    type: Literal["json_schema"] = "json_schema"
    json_schema: dict[str, Any]
    strict: bool | None = None


ResponseFormat = ResponseFormatText | ResponseFormatJson | ResponseFormatJsonSchema
"""Any of the three."""


class ChatRequest(_WireModel):
    """What a provider is asked; `timeout` is in seconds."""

    messages: list[Message]
    tools: list[ToolSpec] | None = None
    response_format: ResponseFormat | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    conversation_id: str | None = None
    stream: bool | None = False
    metadata: dict[str, Any] | None = None
    model: str | None = None
    tool_choice: str | dict[str, Any] | None = None
    stop: list[str] | None = None
    reasoning_effort: str | None = None
    timeout: float | None = None


class ToolCall(_WireModel):
    """A tool call, read out of a response."""

    id: str
    name: str
    arguments: dict[str, Any]


class Usage(_WireModel):
    """What a response cost, in tokens and in US dollars (a Decimal; written as a string, refused as a float)."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: Decimal | None = None

    @field_validator("cost_usd", mode="before")
    @classmethod
    def reject_float_cost(cls, v: Any) -> Any:
        """Refuse a float."""
        return decimal_or_error(v)

    @field_serializer("cost_usd")
    def serialize_cost_usd(self, v: Decimal | None) -> str | None:
        """Write the cost digit by digit."""
        return None if v is None else str(v)


class Degradation(_WireModel):
    """What a provider gave instead of what was asked, and why."""

    requested: str
    actual: str
    reason: str


class ChatResponse(_WireModel):
    """What a provider answered."""

    content: list[ContentBlockUnion]
    tool_calls: list[ToolCall] | None = None
    usage: Usage | None = None
    degradation: Degradation | None = None
    finish_reason: str | None = None
    metadata: dict[str, Any] | None = None
