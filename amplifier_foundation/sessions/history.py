"""Read turns, open tool calls and answers from a history, and settle a history after a crash.

A history is settled when every tool call has its result. Providers refuse an unsettled one.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.transcript import text_of as text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.transcript import Message

INTERRUPTED = {
    "interrupted": True,
    "message": "The process ended while this tool ran; whether it took effect is unknown.",
}

UNFINISHED = frozenset({"interrupted", "length", "context_length", "refusal", "content_filter", "broken_off", "empty"})
"""The `finish_reason`, in an answer's metadata, of an answer that was cut or refused."""

Orphans = Literal["complete", "remove", "error"]
"""How a fork treats tool calls without a result before its point."""


def is_user_turn(message: Message) -> bool:
    """Return whether a person or a trigger wrote this message; hooks inject messages of the role user too."""
    metadata = message.get("metadata")
    if message.get("role") != "user" or (isinstance(metadata, dict) and metadata.get("source") == "hook"):
        return False
    content = message.get("content")
    if isinstance(content, str):
        return not content.lstrip().startswith("<system-reminder")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
    is_reminder = [isinstance(text, str) and text.lstrip().startswith("<system-reminder") for text in texts]
    return not (is_reminder and all(is_reminder))


def turn_starts(messages: Iterable[Message]) -> list[int]:
    """Return the positions of the first messages of turns."""
    return [position for position, message in enumerate(messages) if is_user_turn(message)]


def open_calls(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the tool calls without a result, in their order."""
    answered = {message.get("tool_call_id") for message in messages if message.get("role") == "tool"}
    return [
        call
        for message in messages
        if message.get("role") == "assistant"
        for call in message.get("tool_calls") or ()
        if call.get("id") and call["id"] not in answered
    ]


def interrupted_results(messages: Sequence[Message]) -> list[Message]:
    """Return tool messages to settle a history after a crash: each open call is recorded as interrupted."""
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
    """Return the number of messages up to the end of turn `turn` (1-based). Raises `ValueError`."""
    starts = turn_starts(messages)
    if not 1 <= turn <= len(starts):
        raise ValueError(f"Turn {turn} out of range. Valid range: 1-{len(starts)}" if starts else "it has no turns yet")
    return starts[turn] if turn < len(starts) else len(messages)


def final_answer(messages: Sequence[Message]) -> str | None:
    """Return the text at the end of a finished history, or None when its last turn is still open.

    A turn with an answer that was cut or refused is open.
    """
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls"):
        return None
    if (last.get("metadata") or {}).get("finish_reason") in UNFINISHED:
        return None
    return text_of(last)


def time_of(message: Message) -> float | None:
    """Return the time of a message in seconds since 1970; None without one."""
    metadata = message.get("metadata")
    stamp = metadata.get("timestamp") if isinstance(metadata, dict) else None
    try:
        moment = datetime.fromisoformat(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None
    return moment.timestamp() if moment is not None and moment.tzinfo is not None else None


def describe_fallback(message: Message) -> str:
    """Return which provider gave an answer instead of the preferred one, as in `two instead of one`; else ''."""
    about = (message.get("metadata") or {}).get("fallback")  # as `bundle.fallback` writes it
    if not isinstance(about, dict):
        return ""
    model = f" {about['model']}" if about.get("model") else ""
    return f"{about.get('provider')}{model} instead of {about.get('from')}"
