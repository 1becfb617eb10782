"""Turn the content blocks of the protocol into messages of a session, and back."""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from amplifier_core.permissions.hidden import replace_unprintable

from .params import Media, ResourceLink, Text
from .peer import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .params import Block

LONGEST_TITLE, LONGEST_READ = 80, 4_000
"""Characters of a title, and of the beginning of a prompt that are looked at for it."""
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PDF = "application/pdf"


class Said(NamedTuple):
    """What a person said: text, and blocks for the model beside it."""

    text: str
    attached: tuple[dict[str, Any], ...] = ()


def read_prompt(blocks: Sequence[Block]) -> Said:
    """Return the text and the images of a prompt; resources become text. Raises `RpcError`."""
    texts: list[str] = []
    images: list[dict[str, Any]] = []
    for number, block in enumerate(blocks):
        if isinstance(block, Text):
            texts.append(block.text)
        elif isinstance(block, Media):
            images.append(_read_image(block.data, block.mime_type, f"prompt.{number}"))
        elif isinstance(block, ResourceLink):
            texts.append(f"[{block.name}]({_show_uri(block.uri)})")
        elif block.resource.text is not None:
            texts.append(f'\n<resource uri="{_show_uri(block.resource.uri)}">\n{block.resource.text}\n</resource>\n')
        elif (block.resource.mime_type or "") in (*_IMAGES, _PDF):
            images.append(_read_image(block.resource.blob or "", block.resource.mime_type or "", f"prompt.{number}"))
        else:
            kind = block.resource.mime_type or "bytes"
            raise RpcError(INVALID_PARAMS, f"prompt.{number}: a resource of the type {kind} cannot be shown to a model")
    text = _join(texts)
    if not text.strip() and not images:
        raise RpcError(INVALID_PARAMS, "prompt: it is empty", {"member": "prompt"})
    return Said(text, tuple(images))


def show_message(message: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the content of a stored message, without secrets: `text` or `thought`, with a block of the protocol."""
    from amplifier_core.utils.secrets import redact_text

    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for block in blocks:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "text" and block.get("text"):
            yield "text", make_text(redact_text(str(block["text"])))
        elif kind == "thinking" and block.get("thinking"):
            yield "thought", make_text(redact_text(str(block["thinking"])))
        elif kind == "image" and (source := block.get("source") or {}).get("data"):
            yield "text", {"type": "image", "data": source["data"], "mimeType": source.get("media_type", "image/png")}


def name_kinds(said: Said) -> str:
    """Return what kinds of files a prompt shows to the model: images, PDFs, or both."""
    kinds = {"PDFs" if each["source"]["media_type"] == _PDF else "images" for each in said.attached}
    return " or ".join(sorted(kinds, reverse=True))


def make_text(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


def make_safe_text(text: str) -> dict[str, Any]:
    """Return a text as a block, without its secrets."""
    from amplifier_core.utils.secrets import redact_text

    return make_text(redact_text(text))


def make_title(name: str, bundle: str, prompt: str) -> str:
    """Return the title of a session: its name where a person gave one, else the beginning of its first prompt."""
    if name and name != bundle:
        return name
    from amplifier_core.utils.secrets import redact_text

    shown = redact_text(prompt.lstrip()[:LONGEST_READ])
    line = " ".join(replace_unprintable(shown, lambda sign: " ").split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1] + "…"


def _read_image(data: str, media_type: str, place: str) -> dict[str, Any]:
    from amplifier_core.utils.images import find_image_type

    try:
        image = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RpcError(INVALID_PARAMS, f"{place}: its data is no base64") from None
    if media_type not in (*_IMAGES, _PDF):
        raise RpcError(INVALID_PARAMS, f"{place}: a model sees PNG, JPEG, GIF and WebP, and not {media_type!r}")
    if media_type in _IMAGES:
        found = find_image_type(image)
        if found is None:
            raise RpcError(INVALID_PARAMS, f"{place}: the image is damaged")
        media_type = found
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _join(texts: list[str]) -> str:
    """Join texts as an editor splits them: a mention stands within its sentence."""
    joined = ""
    for text in texts:
        needs_space = joined and text and not joined[-1].isspace() and not text[0].isspace()
        joined += f"{' ' if needs_space else ''}{text}"
    return joined


def _show_uri(uri: str) -> str:
    """Return the path of a file's address, else the address, also one that is none."""
    shown = uri
    with suppress(ValueError):
        parts = urlsplit(uri)
        shown = unquote(parts.path) if parts.scheme == "file" else uri
    return shown.replace('"', "%22").replace("\n", "%0A")
