"""Make prompts, answers and arguments fit for a span: redacted by the one redactor, and bounded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .reading import read

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 8_000
"""Characters of content in one attribute."""
_READ_AHEAD = 4 * LONGEST
"""Characters given to the redactor: a secret at the cut is seen whole."""
MOST = 200
"""Members of one list or mapping."""


def as_content(value: Any, longest: int = LONGEST) -> str:
    """Return a value as JSON, or a text as itself, without the known secrets; the rest of a long one is cut."""
    from .redaction import redact_all

    if not isinstance(value, str):
        value = json.dumps(redact_all(_cut(value)), ensure_ascii=False, default=str)
    text: str = redact_all(value[:_READ_AHEAD])
    return text if len(text) <= longest else f"{text[:longest]} [cut]"


def as_prompt(text: str) -> str:
    """Return a prompt in the form of `gen_ai.input.messages`."""
    return json.dumps([{"role": "user", "parts": [_text(as_content(text))]}], ensure_ascii=False)


def as_answer(content: Any, finish_reason: str) -> str:
    """Return the content of an answer, a text or blocks, in the form of `gen_ai.output.messages`."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    said = {"role": "assistant", "parts": list(_make_parts(blocks)), "finish_reason": finish_reason}
    return json.dumps([said], ensure_ascii=False)


def _make_parts(blocks: list[Any]) -> Iterator[dict[str, Any]]:
    left = LONGEST
    for block in blocks[:MOST]:
        if left <= 0:
            return
        kind = read(block, "type")
        kind = str(getattr(kind, "value", kind))
        if kind == "tool_call":
            arguments = as_content(read(block, "input"), left)
            left -= len(arguments)
            yield {"type": kind, "id": read(block, "id"), "name": read(block, "name"), "arguments": arguments}
            continue
        text = as_content(str(read(block, "text") or read(block, "thinking") or ""), left)
        left -= len(text)
        if text:
            yield _text(text, "reasoning" if kind == "thinking" else "text")


def _text(text: str, kind: str = "text") -> dict[str, str]:
    return {"type": kind, "content": text}


def _cut(value: Any, depth: int = 8) -> Any:
    """Return a copy with long texts and long lists cut: the redactor reads no megabytes for a span."""
    if isinstance(value, str):
        return value[:_READ_AHEAD]
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        return {str(key): _cut(each, depth - 1) for key, each in list(value.items())[:MOST]}
    if isinstance(value, list | tuple):
        return [_cut(each, depth - 1) for each in value[:MOST]]
    return value
