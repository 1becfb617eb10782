"""Turns and fork points: where one may cut a history without breaking it.

A history is settled where every tool call has its result; a provider refuses one that is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.transcript import Message

INTERRUPTED = {
    "interrupted": True,
    "message": "The process ended while this tool ran; whether it took effect is unknown.",
}


def is_user_turn(message: Message) -> bool:
    """Return whether a person (or a trigger) said this: hooks inject messages of role user too."""
    if message.get("role") != "user" or (message.get("metadata") or {}).get("source") == "hook":
        return False
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return not (blocks and all(_is_reminder(block) for block in blocks))


def _is_reminder(block: Any) -> bool:
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and text.lstrip().startswith("<system-reminder")


def turn_starts(messages: Iterable[Message]) -> list[int]:
    """Return the positions at which a turn begins."""
    return [position for position, message in enumerate(messages) if is_user_turn(message)]


def open_calls(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the tool calls that have no result, in their order."""
    answered = {message.get("tool_call_id") for message in messages if message.get("role") == "tool"}
    return [
        call
        for message in messages
        if message.get("role") == "assistant"
        for call in message.get("tool_calls") or ()
        if call.get("id") and call["id"] not in answered
    ]


def interrupted_results(messages: Sequence[Message]) -> list[Message]:
    """Return the tool messages that settle a history which a crash cut: each open call is recorded as interrupted."""
    return [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "name": call.get("tool") or (call.get("function") or {}).get("name", ""),
            "content": json.dumps(INTERRUPTED),
        }
        for call in open_calls(messages)
    ]


def end_of_turn(messages: Sequence[Message], turn: int) -> int:
    """Return how many messages there are up to the end of turn `turn` (1-based). Raises `ValueError`."""
    starts = turn_starts(messages)
    if not 1 <= turn <= len(starts):
        raise ValueError(f"Turn {turn} out of range. Valid range: 1-{len(starts)}" if starts else "it has no turns yet")
    return starts[turn] if turn < len(starts) else len(messages)
