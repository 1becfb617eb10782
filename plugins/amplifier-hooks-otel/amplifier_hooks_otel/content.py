"""Make prompts, answers and arguments fit for a span: redacted by the one redactor, and bounded."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 8_000
"""Characters of one attribute with content."""


def as_content(value: Any) -> str:
    """Return a value as JSON, or a text as itself, without the known secrets; the rest of a long one is cut."""
    from amplifier_core.utils.secrets import redact_all

    value = _plain(value)
    if not isinstance(value, str):
        value = json.dumps(redact_all(_cut(value)), ensure_ascii=False, default=str)
    text: str = redact_all(value[: 4 * LONGEST])
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} [cut: {len(text) - LONGEST} more characters]"


def message(role: str, text: str, finish_reason: str = "") -> str:
    """Return a message in the form of `gen_ai.input.messages` and `gen_ai.output.messages`."""
    said: dict[str, Any] = {"role": role, "parts": [{"type": "text", "content": as_content(text)}]}
    return json.dumps([{**said, "finish_reason": finish_reason} if finish_reason else said], ensure_ascii=False)


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", exclude_none=True) if dump is not None else value


def _cut(value: Any, depth: int = 8) -> Any:
    """Return a copy with long texts and long lists cut: the redactor reads no megabytes for a span."""
    if isinstance(value, str):
        return value[: 2 * LONGEST]
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        return {str(key): _cut(each, depth - 1) for key, each in list(value.items())[:200]}
    if isinstance(value, list | tuple):
        return [_cut(each, depth - 1) for each in value[:200]]
    return value
