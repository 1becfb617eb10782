"""Make the content of messages: blocks as dicts, and of a tool's result a text, or blocks where it has images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_core.models import ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable

Content = str | list[dict[str, Any]]

LARGEST_IMAGE, LARGEST_IMAGES = 7_000_000, 20_000_000
"""Characters of the base64 of one image, and of all images of a result: services refuse more."""
UNSEEN = "[An image is left out here: the model sees no images.]"
_PLACES = ("data", "url", "file_id")
_BLOCKS = frozenset({TextBlock, ThinkingBlock, ToolCallBlock})


def as_dicts(content: Any) -> list[dict[str, Any]]:
    """Return blocks of any kind, or a plain text, as dicts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_as_dict(block) for block in content or ()]


def _as_dict(block: Any) -> dict[str, Any]:
    """Return a block as a dict, as `model_dump` does; the usual ones in a fraction of its time."""
    kind = type(block)
    if kind is TextBlock and block.visibility is None and not block.model_extra:
        return {"type": "text", "text": block.text}
    if kind in _BLOCKS:
        dumped: dict[str, Any] = block.__pydantic_serializer__.to_python(block, exclude_none=True)
        return dumped
    if isinstance(block, dict):
        return block
    dump = getattr(block, "model_dump", None)
    dumped = block.to_dict() if dump is None else dump(exclude_none=True)
    return dumped


def make_content(result: ToolResult) -> Content:
    """Return a result for the model: its text, or the text and the images in their order."""
    blocks = getattr(result, "content", None)  # another kernel has none
    if not blocks or not any(block.type == "image" for block in blocks):
        return read_text(result)
    dumped = [block.model_dump(exclude_none=True) for block in blocks]
    if result.output is not None:
        dumped = [{"type": "text", "text": read_text(result)}, *(each for each in dumped if each["type"] == "image")]
    return bound_images(dumped)


def bound_images(blocks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return blocks with a text in place of each image that is too large, or without its bytes."""
    bounded, total = [], 0
    for block in blocks:
        if block["type"] == "image":
            source = block["source"]
            size = len(str(source.get("data", "")))
            if not any(source.get(place) for place in _PLACES):
                block = {"type": "text", "text": "[An image is left out here.]"}
            elif size > LARGEST_IMAGE or total + size > LARGEST_IMAGES:
                block = {"type": "text", "text": f"[An image of {size * 3 // 4:,} bytes is left out here: too large.]"}
            else:
                total += size
        bounded.append(block)
    return bounded


def read_text(result: ToolResult) -> str:
    """Return the result as text for the model. Raises `TypeError`, `ValueError`, `RecursionError`."""
    try:
        text = _serialize(result)
    except (TypeError, ValueError, RecursionError):
        raise
    except Exception as error:  # the output is any object, and it writes itself
        raise ValueError(text_of(error) or type(error).__name__) from error
    if text or result.success:
        return text
    return f"Error: {result.error or 'the tool failed and did not say why'}"


def _serialize(result: ToolResult) -> str:
    try:
        return result.get_serialized_output()
    except TypeError:  # JSON cannot hold the output: a date, a path, a set
        from pydantic_core import to_jsonable_python

        output = to_jsonable_python(result.output, fallback=str, bytes_mode="base64")
        return ToolResult(output=output).get_serialized_output()


def text_of(error: BaseException) -> str:
    """Return the text of an error, "" where it has none or cannot tell it."""
    try:
        if not isinstance(error, BaseExceptionGroup):
            return str(error)
        parts = [f"{type(each).__name__}: {text_of(each)}".removesuffix(": ") for each in error.exceptions]
        return f"{error.message}: {'; '.join(parts)}"
    except Exception:
        return ""


def shorten(content: Content, longest: int) -> Content:
    """Return the content, each text cut after `longest` characters with a note of how many are missing."""
    if not isinstance(content, str):
        return [
            {**block, "text": shorten(block["text"], longest)} if block["type"] == "text" else block
            for block in content
        ]
    missing = len(content) - longest
    if missing <= 0:
        return content
    return f"{content[:longest]}\n[The result is cut here: {missing} of its {len(content)} characters are missing.]"


def add_text(content: Content, text: str) -> Content:
    """Return the content with a text after it."""
    return f"{content}\n\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": text}]


def adapt_messages(messages: list[dict[str, Any]], provider: Any) -> list[dict[str, Any]]:
    """Return messages as a provider takes them: one without vision gets a text in place of images of tools' results."""
    for each in messages:  # at each request, and a generator takes three times as long
        if each.get("role") == "tool" and each.get("content").__class__ is list:
            break
    else:
        return messages
    if sees_images(provider):
        return messages
    changed = []
    for message in messages:
        content = message.get("content")
        if message.get("role") == "tool" and isinstance(content, list):
            texts = [each.get("text", "") if each.get("type") == "text" else UNSEEN for each in content]
            message = {**message, "content": "\n".join(texts)}
        changed.append(message)
    return changed


def sees_images(provider: Any) -> bool:
    """Return whether a provider may have vision: its capabilities name it, or it names none."""
    info = getattr(provider, "get_info", None)
    capabilities = getattr(info(), "capabilities", None) if callable(info) else None
    return not isinstance(capabilities, list) or not capabilities or "vision" in capabilities
