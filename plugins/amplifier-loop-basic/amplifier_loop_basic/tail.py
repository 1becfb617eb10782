"""What the end of a history says about how the last turn ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def awaits_model(history: Sequence[dict[str, Any]]) -> bool:
    """Return whether the history breaks off before the model's final answer."""
    if not len(history):
        return False
    last = history[-1]
    return last.get("role") != "assistant" or bool(last.get("tool_calls"))


def unanswered_calls(history: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return id and tool of each tool call at the end of the history that has no result."""
    answered = set()
    for message in reversed(history):
        role = message.get("role")
        if role == "tool":
            answered.add(message.get("tool_call_id"))
        elif role == "assistant":
            calls = message.get("tool_calls") or ()
            return [(call["id"], call.get("tool", "")) for call in calls if call["id"] not in answered]
        elif role == "user":
            break
    return []
