"""Define the data between a session and a model: messages, requests and responses, in their wire form.

Every model keeps unknown fields and returns them: a provider may carry more than is named here.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_serializer, field_validator

from .model_drafts import make_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

Visibility = Literal["internal", "developer", "user"]


class _WireModel(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True)

    @classmethod
    def unchecked(cls, **fields: Any) -> Self:
        """Return a model of values that have the types of their fields already, in a third of the time."""
        return make_model(cls, {**_default_fields(cls), **fields}, set(fields), {})


@cache
def _default_fields(kind: type[_WireModel]) -> dict[str, Any]:
    """Return the fields of a model in their order, with their defaults: none of them is a list or a mapping."""
    return {name: field.default for name, field in kind.model_fields.items()}


def decimal_or_error(value: Any) -> Any:
    """Return `value` unless it is a float: a binary fraction does not hold an amount of money exactly."""
    if isinstance(value, float):
        raise ValueError(f"cost_usd must be Decimal, or text, and not float ({value!r})")
    return value


class TextBlock(_WireModel):
    """Text for a reader."""

    type: Literal["text"] = "text"
    text: str
    visibility: Visibility | None = None


class ThinkingBlock(_WireModel):
    """A model's thinking; `signature` proves to its provider that it is unchanged."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str | None = None
    visibility: Visibility | None = None
    content: list[Any] | None = None


class RedactedThinkingBlock(_WireModel):
    """Thinking in the form of its provider, for its eyes only; it is sent back unchanged."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str
    visibility: Visibility | None = None


class ToolCallBlock(_WireModel):
    """A model's request to call a tool."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    input: dict[str, Any]
    visibility: Visibility | None = None


class ToolResultBlock(_WireModel):
    """The result of the tool call `tool_call_id`."""

    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    output: Any
    visibility: Visibility | None = None


class ImageBlock(_WireModel):
    """An image; `source` is its place, or its bytes."""

    type: Literal["image"] = "image"
    source: dict[str, Any]
    visibility: Visibility | None = None


class ReasoningBlock(_WireModel):
    """A model's reasoning with a summary, in the form of some providers."""

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
    """A request to a provider; `timeout` is in seconds."""

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


@cache  # built at the first request, as every model
def _messages_validation() -> Callable[[Any], list[Message]]:
    return TypeAdapter(list[Message]).validator.validate_python


def make_request(messages: Sequence[Mapping[str, Any]], tools: list[ToolSpec] | None = None) -> ChatRequest:
    """Return `ChatRequest(messages=messages, tools=tools)` in three quarters of its time (3.4 of 4.4 µs).

    Only the messages are validated: the tools are models already.

    Raises pydantic's `ValidationError` for a message that is none.
    """
    own = None if tools is None else tools[:]  # a provider may change it: the next request has the same tools
    return ChatRequest.unchecked(messages=_messages_validation()(messages), tools=own)


class ToolCall(_WireModel):
    """A tool call, read out of a response."""

    id: str
    name: str
    arguments: dict[str, Any]


class Usage(_WireModel):
    """The cost of a response, in tokens and in US dollars (a Decimal; a string in JSON, never a float).

    `input_tokens` are all tokens of the request. Those read from the provider's cache (`cache_read_tokens`) or written
    to it (`cache_write_tokens`) are among them, and counted apart as well. `output_tokens` are all tokens of the
    response, `reasoning_tokens` among them. `total_tokens` is the sum of input and output.
    """

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
    """A provider's substitute for something requested, with the reason."""

    requested: str
    actual: str
    reason: str


class ChatResponse(_WireModel):
    """A provider's answer."""

    content: list[ContentBlockUnion]
    tool_calls: list[ToolCall] | None = None
    usage: Usage | None = None
    degradation: Degradation | None = None
    finish_reason: str | None = None
    metadata: dict[str, Any] | None = None
