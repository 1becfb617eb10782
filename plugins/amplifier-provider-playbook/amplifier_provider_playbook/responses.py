"""Make the responses of a playbook: content, tool calls with ids of their own, and usage."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core.message_models import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amplifier_core import Message

    from .rules import FilledAnswer

M = TypeVar("M")

CHARACTERS_PER_TOKEN = 4

_OWN_ID = re.compile(r"call_([0-9]{1,18})")


def _maker(kind: type[M]) -> Callable[..., M]:
    """Return what makes a model of values with the right types; another kernel has no way without a validation."""
    make: Callable[..., M] = getattr(kind, "unchecked", kind)
    return make


_make_text, _make_block = _maker(TextBlock), _maker(ToolCallBlock)
_make_call, _make_usage, _make_response = _maker(ToolCall), _maker(Usage), _maker(ChatResponse)


def make_response(messages: Sequence[Message], place: str, answer: FilledAnswer) -> ChatResponse:
    """Return the response with an answer; `place` is that of its rule."""
    said = [] if answer.say is None else [_make_text(text=answer.say)]
    first = _next_number(messages) if answer.calls else 0
    calls = [
        _make_call(id=f"call_{number}", name=tool, arguments=given)
        for number, (tool, given) in enumerate(answer.calls, first)
    ]
    return _make_response(
        content=[*said, *[_make_block(id=call.id, name=call.name, input=call.arguments) for call in calls]],
        tool_calls=calls or None,
        usage=_count_usage(messages, answer),
        finish_reason="tool_calls" if calls else "stop",
        metadata={"rule": place},
    )


def _next_number(messages: Sequence[Message]) -> int:
    """Return the number of the next call: above all others, also after a context dropped old messages."""
    for message in reversed([each for each in messages if each.role == "assistant"]):
        ids = [str(call.get("id")) for call in getattr(message, "tool_calls", None) or ()]
        if not isinstance(message.content, str):
            ids += [block.id for block in message.content if block.type == "tool_call"]
        numbers = [int(found[1]) for each in ids if (found := _OWN_ID.fullmatch(each))]
        if numbers:
            return max(len(messages), max(numbers) + 1)
    return len(messages)


def _count_usage(messages: Sequence[Message], answer: FilledAnswer) -> Usage:
    spoken = len(answer.say or "") + sum(len(tool) + _length(given) for tool, given in answer.calls)
    heard = sum(
        len(message.content) if isinstance(message.content, str) else sum(map(_block_length, message.content))
        for message in messages
    )
    read, written = -(-heard // CHARACTERS_PER_TOKEN), -(-spoken // CHARACTERS_PER_TOKEN)
    return _make_usage(input_tokens=read, output_tokens=written, total_tokens=read + written, cost_usd=Decimal("0"))


def _block_length(block: Any) -> int:
    if block.type == "text":
        return len(block.text)
    if block.type == "tool_call":
        return len(block.name) + _length(block.input)
    return _length(block.output) if block.type == "tool_result" else 0


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str))
