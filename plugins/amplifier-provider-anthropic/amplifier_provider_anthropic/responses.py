"""Read the answers of the service: their events as they come, and the whole at their end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from amplifier_core.llm_errors import StreamError
from amplifier_core.message_models import (
    ChatResponse,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from amplifier_providers.calls import read_input, refuse_input
from amplifier_providers.provider import BROKEN_OFF
from amplifier_providers.streaming import BlockStream, UntilEnd

from .models import compute_cost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anthropic import AsyncStream
    from anthropic.types import Message, RawMessageStreamEvent

    from .requests import Call

PROVIDER = "anthropic"
_KINDS = {"text": "text", "thinking": "thinking", "redacted_thinking": "thinking", "tool_use": "tool_use"}
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_length",
    "refusal": "refusal",
}
"""The words of the kernel for those of the service; another word stays as it is."""


Inputs = dict[int, str]
"""The inputs of an answer's tool calls, as text, by the position of the block."""


class _Counted:
    """The events of an answer as the SDK can add them up: with a usage, and an input that UTF-8 holds."""

    def __init__(self, events: AsyncStream[RawMessageStreamEvent]) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def __aiter__(self) -> AsyncIterator[RawMessageStreamEvent]:
        from anthropic.types import MessageDeltaUsage
        from anthropic.types import Usage as ServiceUsage

        async for event in self._events:
            if event.type == "message_start" and not _has_counts(getattr(event.message, "usage", None)):
                event.message.usage = ServiceUsage.construct(input_tokens=None, output_tokens=None)
            elif event.type == "message_delta" and not _has_counts(getattr(event, "usage", None)):
                event.usage = MessageDeltaUsage.construct(output_tokens=None)
            elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                # The SDK writes UTF-8, which holds no half of a surrogate pair: JSON does, as `\ud83d`.
                event.delta.partial_json = event.delta.partial_json.encode(errors="backslashreplace").decode()
            yield event


def _has_counts(usage: Any) -> bool:
    names = ("input_tokens", "output_tokens")
    return hasattr(usage, names[1]) and all(isinstance(getattr(usage, name), int | None) for name in names)


async def follow(
    events: AsyncStream[RawMessageStreamEvent], blocks: BlockStream, on_begin: Callable[[], None]
) -> tuple[Message, Inputs]:
    """Pass on the pieces of an answer, and return the whole; `on_begin` is called at its first block.

    Raises `StreamError` for an answer that ends before it is complete, and `InvalidToolCallError`.
    """
    from anthropic import NOT_GIVEN
    from anthropic.lib.streaming import AsyncMessageStream

    stream = AsyncMessageStream(cast("AsyncStream[RawMessageStreamEvent]", _Counted(events)), NOT_GIVEN)
    inputs: Inputs = {}
    tool, pieces = "", UntilEnd(stream)
    try:
        async for event in pieces:
            if event.type == "content_block_start":
                on_begin()
                tool = event.content_block.name if event.content_block.type == "tool_use" else ""
                await blocks.start(_KINDS.get(event.content_block.type), **({"name": tool} if tool else {}))
            elif event.type == "content_block_delta":
                if event.delta.type == "text_delta":
                    await blocks.delta(event.delta.text)
                elif event.delta.type == "thinking_delta":
                    await blocks.delta(event.delta.thinking)
                elif event.delta.type == "input_json_delta":
                    inputs[event.index] = inputs.get(event.index, "") + event.delta.partial_json
            elif event.type == "content_block_stop":
                await blocks.end()
            elif event.type == "message_stop":
                pieces.is_whole = True
            elif event.type in ("message_start", "message_delta"):
                blocks.note_usage(lambda: read_usage(stream.current_message_snapshot))
    except ValueError as error:  # the SDK's own, for the input of a call that is not the beginning of any JSON
        if not tool or isinstance(error, json.JSONDecodeError):
            raise
        raise refuse_input(tool, "".join(inputs.values())) from None
    if not pieces.is_whole:
        kind = stream.response.headers.get("content-type", "none")
        hint = "" if "event-stream" in kind else f" (content type {kind}: is base_url right?)"
        raise StreamError(f"the answer ended before it was complete{hint}")
    return stream.current_message_snapshot, inputs


def read_answer(message: Message, inputs: Inputs, call: Call) -> ChatResponse:
    """Return an answer in the form of the kernel.

    A call that a limit of length cut off is left out. Raises `InvalidToolCallError` for another one without valid JSON.
    """
    said = message.stop_reason or "null"  # of a gateway
    reason = FINISH_REASONS.get(said, said)
    content: list[Any] = []
    for index, block in enumerate(message.content):
        if block.type == "text":
            content.append(TextBlock(text=block.text))
        elif block.type == "thinking":
            content.append(ThinkingBlock(thinking=block.thinking, signature=block.signature))
        elif block.type == "redacted_thinking":
            content.append(RedactedThinkingBlock(data=block.data))
        elif block.type == "tool_use":
            is_cut = reason in ("length", "context_length", *BROKEN_OFF) and block is message.content[-1]
            given = read_input(inputs.get(index, ""), block.name, is_cut=is_cut)
            if given is not None:
                content.append(ToolCallBlock(id=block.id, name=block.name, input=given))
    calls = [ToolCall(id=each.id, name=each.name, arguments=each.input) for each in content if each.type == "tool_call"]
    metadata: dict[str, Any] = {"model": message.model, "message_id": message.id}
    if message.stop_details is not None:
        metadata["stop_details"] = message.stop_details.model_dump(mode="json", exclude_none=True)
    return ChatResponse(
        content=content,
        tool_calls=calls or None,
        degradation=call.degradation,
        finish_reason=reason,
        metadata=metadata,
    )


def read_usage(message: Message) -> Usage | None:
    """Return the tokens, None if a gateway tells none; cached ones are among those of the input, and counted apart."""
    usage = message.usage
    if getattr(usage, "input_tokens", None) is None or getattr(usage, "output_tokens", None) is None:
        return None
    written, read = usage.cache_creation_input_tokens, usage.cache_read_input_tokens
    given = usage.input_tokens + (written or 0) + (read or 0)
    details = usage.output_tokens_details
    return Usage(
        input_tokens=given,
        output_tokens=usage.output_tokens,
        total_tokens=given + usage.output_tokens,
        reasoning_tokens=details.thinking_tokens if details else None,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cost_usd=compute_cost(message.model, usage),
    )
