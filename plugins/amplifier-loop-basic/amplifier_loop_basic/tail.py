"""Tell from the end of a history how the last turn ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .call_context import OpenCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core import ChatResponse


UNFINISHED = frozenset({"interrupted", "length", "refusal", "content_filter", "empty"})
"""The `finish_reason` of answers that are none, or not whole."""
_SPELLINGS = {
    "length": ("max_tokens", "max_output_tokens", "model_context_window_exceeded"),
    "refusal": ("refused",),
    "content_filter": ("content_filtered", "safety", "prohibited_content", "blocklist", "recitation", "spii"),
}
_REASONS = {name: name for name in _SPELLINGS} | {each: name for name, known in _SPELLINGS.items() for each in known}


def unfinished_reason(response: ChatResponse, text: str) -> str:
    """Return why an answer with this text is not whole; "" for a whole one.

    `length`, `refusal` and `content_filter` stand for any service's word. `empty` is an answer without a word whose
    provider does not say why: some drop the text of a refusal.
    """
    said = response.finish_reason
    for key, value in (response.metadata or {}).items():
        if key.endswith("incomplete_reason") and isinstance(value, str):  # of published providers: `openai:…`
            said = said or value
    if said is None:
        return "" if text else "empty"
    return _REASONS.get(said.lower(), "")


def is_unfinished(history: Sequence[dict[str, Any]]) -> bool:
    """Return whether the history ends with an answer that was cut or refused."""
    last = history[-1] if len(history) else {}
    return last.get("role") == "assistant" and (last.get("metadata") or {}).get("finish_reason") in UNFINISHED


def awaits_model(history: Sequence[dict[str, Any]]) -> bool:
    """Return whether the history ends before the model's final answer."""
    if not len(history):
        return False
    last = history[-1]
    return last.get("role") != "assistant" or bool(last.get("tool_calls")) or is_unfinished(history)


def find_unanswered(history: Sequence[dict[str, Any]]) -> list[OpenCall]:
    """Return the tool calls without a result at the end of the history."""
    answered = set()
    for position in range(len(history) - 1, -1, -1):
        message = history[position]
        role = message.get("role")
        if role == "tool":
            answered.add(message.get("tool_call_id"))
        elif role == "assistant":
            calls = message.get("tool_calls") or ()
            return [
                OpenCall(call["id"], call.get("tool", ""), call.get("arguments") or {})
                for call in calls
                if call["id"] not in answered
            ]
        elif role == "user":
            break
    return []
