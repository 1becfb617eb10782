"""Turn the content of MCP into results of tools: text, images, and what stands for anything else."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.message_models import ImageBlock, TextBlock
from amplifier_core.models import ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable

LARGEST_IMAGE = 5 * 1024 * 1024
"""Characters of an image in base64; models take no larger ones."""
MOST_IMAGES = 20
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The types of images that models see."""


def make_result(result: Any, longest: int) -> ToolResult:
    """Return the result of a call; a failed one has the server's words as its error."""
    texts, images = read_content(result.content)
    structured = result.structured_content
    if not texts and not images and structured is not None:
        texts = [json.dumps(structured, ensure_ascii=False)]
    text = shorten("\n".join(texts), longest)
    if result.is_error:
        return ToolResult(success=False, error={"message": text or "the server says no more", "type": "McpToolError"})
    return make_content(text, images)


def make_content(text: str, images: list[ImageBlock]) -> ToolResult:
    """Return a result with text, and with blocks where there are images."""
    if not images:
        return ToolResult(output=text)
    return ToolResult(content=[*([TextBlock(text=text)] if text else []), *images])


def read_content(blocks: Iterable[Any]) -> tuple[list[str], list[ImageBlock]]:
    """Return the texts and the images of content; what is neither becomes a line of text."""
    texts: list[str] = []
    images: list[ImageBlock] = []
    for block in blocks:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "image":
            _take_image(block.data, block.mime_type, texts, images)
        elif block.type == "resource":
            read_resource(block.resource, texts, images)
        elif block.type == "resource_link":
            texts.append(f"[resource: {block.uri}{f', {block.name}' if block.name else ''}]")
        else:
            texts.append(f"[{block.type}: {getattr(block, 'mime_type', 'unknown')}, left out]")
    return texts, images


def read_resource(resource: Any, texts: list[str], images: list[ImageBlock]) -> None:
    """Add the text, or the image, of a resource's contents."""
    text, blob = getattr(resource, "text", None), getattr(resource, "blob", None)
    if text is not None:
        texts.append(text)
    elif blob is not None and resource.mime_type in IMAGES:
        _take_image(blob, resource.mime_type, texts, images)
    else:
        texts.append(f"[resource: {resource.uri}, {resource.mime_type or 'binary'}, left out]")


def shorten(text: str, longest: int) -> str:
    """Return a text without known secrets, cut after `longest` characters with a note of how many are missing."""
    from amplifier_core.utils.secrets import hide_known

    text = hide_known(text)  # a server may show the keys that it was given
    missing = len(text) - longest
    if missing <= 0:
        return text
    return f"{text[:longest]}\n[The result is cut here: {missing} of its {len(text)} characters are missing.]"


def _take_image(data: str, kind: str, texts: list[str], images: list[ImageBlock]) -> None:
    found = None
    if kind in IMAGES and len(data) <= LARGEST_IMAGE and len(images) < MOST_IMAGES:
        from amplifier_core.utils.images import find_image_type

        with suppress(ValueError):
            found = find_image_type(b64decode(data, validate=True))
        if found is None:
            texts.append(f"[image: {kind}, {len(data)} characters, damaged, left out]")
        else:
            images.append(ImageBlock(source={"type": "base64", "media_type": found, "data": data}))
    else:
        texts.append(f"[image: {kind}, {len(data)} characters of base64, left out]")
