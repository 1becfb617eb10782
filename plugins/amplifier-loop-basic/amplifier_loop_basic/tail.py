"""Tell from the end of a history how the last turn ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .call_context import OpenCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core import ChatResponse


logger = logging.getLogger(__name__)

_SPELLINGS = {
    "length": ("max_tokens", "max_output_tokens"),
    "context_length": ("model_context_window_exceeded", "model_length"),
    "refusal": ("refused",),
    "content_filter": (
        *("content_filtered", "safety", "prohibited_content", "blocklist", "recitation", "spii", "sensitive"),
        *("image_safety", "image_prohibited_content", "image_recitation", "model_armor", "guardrail_intervened"),
    ),
    "broken_off": (
        *("error", "failed", "abort", "aborted", "cancelled", "canceled", "timeout", "incomplete"),
        *("network_error", "insufficient_system_resource"),  # GLM, DeepSeek
        *("other", "language", "too_many_tool_calls", "missing_thought_signature", "no_image", "image_other"),  # Gemini
        "pause_turn",  # Anthropic
        *("load", "unload"),  # Ollama
    ),
}
"""The words of services, in small letters, for an answer that is none, or not whole."""
_REASONS = {name: name for name in _SPELLINGS} | {each: name for name, known in _SPELLINGS.items() for each in known}
UNFINISHED = frozenset({"interrupted", "empty", *_SPELLINGS})
"""The `finish_reason` of answers that are none, or not whole."""
_ENDS = frozenset({"stop", "end_turn", "stop_sequence", "end", "eos", "eos_token", "complete", "completed", "finished"})
_WHOLE = _ENDS | {"", "tool_calls", "tool_use", "function_call"}
"""The words for a whole answer; some services also say one for calls where there is none."""


def unfinished_reason(response: ChatResponse, text: str) -> str:
    """Return why an answer with this text is not whole; "" for a whole one.

    The names of `_SPELLINGS` stand for any service's word. A model that ends by itself without a text has nothing to
    say; without such a word, the answer is `empty`: some providers drop the text of a refusal. White space is no text.
    A text with an unknown word is an answer, as services invent words; a warning tells the word.
    """
    said = response.finish_reason or ""
    for key, value in (response.metadata or {}).items():
        if key.endswith("incomplete_reason") and isinstance(value, str):  # of published providers: `openai:…`
            said = said or (value if value in _REASONS else "incomplete")
    word = said.lower()
    if word in _REASONS:
        return _REASONS[word]
    if not text.strip():
        return "" if word in _ENDS else "empty"
    if word not in _WHOLE:
        logger.warning("an answer may not be whole: its service ended it with '%s', an unknown word", said[:50])
    return ""


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
