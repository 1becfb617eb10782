"""Translate messages into the form of the service.

The service knows two roles. A tool's result is a block of a user's message, and messages of one role in a row are one
message. An instruction within the conversation stays in its place, as a reminder in a user's message: what came before
it is the same in the next request, and the service finds it in its cache.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amplifier_providers.calls import sendable_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core import Message

Block = dict[str, Any]

_INSTRUCTING = ("system", "developer")
_DATA_URL = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)


@dataclass(slots=True)
class Conversation:
    """A conversation in the form of the service.

    `settled` counts, for each message of a user, its blocks that come again in the next request. Its end is without
    messages that were added for one request: those have no metadata, while the messages of a context have some.
    """

    system: list[Block] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    settled: dict[int, int] = field(default_factory=dict)

    def add(self, role: str, blocks: list[Block], *, is_settled: bool) -> None:
        """Add blocks of one role."""
        if not blocks:
            return
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        content = self.messages[-1]["content"]
        content.extend(blocks)
        if role == "user" and is_settled:
            self.settled[len(self.messages) - 1] = len(content)


def read_messages(messages: Sequence[Message], *, with_thinking: bool = True) -> Conversation:
    """Return the conversation of these messages; without thinking, none of its blocks are in it."""
    conversation = Conversation()
    opening = 0
    while opening < len(messages) and messages[opening].role in _INSTRUCTING:
        conversation.system += _text_blocks(messages[opening])
        opening += 1
    settled = len(messages)
    if any(message.metadata for message in messages):
        while settled > opening and not messages[settled - 1].metadata:
            settled -= 1
    for number, message in enumerate(messages[opening:], opening):
        role, blocks = _read_message(message, with_thinking)
        conversation.add(role, blocks, is_settled=number < settled)
    return conversation


def _read_message(message: Message, with_thinking: bool) -> tuple[str, list[Block]]:
    if message.role == "assistant":
        return "assistant", _assistant_blocks(message, with_thinking)
    if message.role == "tool" and message.tool_call_id:
        content = message.content if isinstance(message.content, str) else _dump(message.content)
        return "user", [_tool_result(message.tool_call_id, content)]
    if message.role in _INSTRUCTING:
        blocks = _text_blocks(message)
        return "user", [_text(f"<system-reminder>\n{block['text']}\n</system-reminder>") for block in blocks]
    if isinstance(message.content, str):
        return "user", _text_blocks(message)
    return "user", [block for each in _dump(message.content) if (block := _user_block(each)) is not None]


def _assistant_blocks(message: Message, with_thinking: bool) -> list[Block]:
    if isinstance(message.content, str):
        blocks = _text_blocks(message)
    else:
        dumped = _dump(message.content)
        blocks = [block for each in dumped if (block := _assistant_block(each, with_thinking)) is not None]
    known = {block["id"] for block in blocks if block["type"] == "tool_use"}
    for call in getattr(message, "tool_calls", None) or ():
        block = _tool_use(call.get("id"), call.get("tool") or call.get("name"), call.get("arguments"))
        if block["id"] not in known:
            blocks.append(block)
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):  # refused at the end: a call was cut off
        blocks.pop()
    return blocks


def _assistant_block(block: Block, with_thinking: bool) -> Block | None:
    """Return a block of an answer; None for thinking that the service cannot have signed."""
    match block["type"]:
        case "text":
            return _text(block["text"]) if block["text"].strip() else None
        case "thinking" if with_thinking and block.get("signature"):
            return {"type": "thinking", "thinking": block["thinking"], "signature": block["signature"]}
        case "redacted_thinking" if with_thinking:
            return {"type": "redacted_thinking", "data": block["data"]}
        case "tool_call":
            return _tool_use(block["id"], block["name"], block["input"])
    return None


def _user_block(block: Block) -> Block | None:
    match block["type"]:
        case "text":
            return _text(block["text"]) if block["text"].strip() else None
        case "image":
            return _media(block["source"])
        case "tool_result":
            return _tool_result(block["tool_call_id"], block["output"])
    return None


def _media(source: dict[str, Any]) -> Block:
    """Return an image, or a document if its media type is no image's."""
    url = source.get("url")
    inline = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if inline is not None:
        source = {"type": "base64", **inline.groupdict()}
    media_type = str(source.get("media_type", ""))
    if media_type.startswith("text/"):
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": source["data"]}}
    if source.get("type") == "base64" or "data" in source:
        source = {"type": "base64", "media_type": media_type, "data": source["data"]}
    elif url is not None:
        source = {"type": "url", "url": url}
    is_document = media_type == "application/pdf" or str(url).lower().endswith(".pdf")
    return {"type": "document" if is_document else "image", "source": source}


def _tool_use(call_id: Any, name: Any, given: Any) -> Block:
    return {
        "type": "tool_use",
        "id": call_id,
        "name": sendable_name(name),
        "input": given or {},
    }


def _tool_result(call_id: str, output: Any) -> Block:
    content = output
    if isinstance(output, list) and all(isinstance(each, dict) and "type" in each for each in output):
        content = [block for each in output if (block := _user_block(each)) is not None]
    elif not isinstance(output, str):
        content = json.dumps(output, ensure_ascii=False, default=str)
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def _text_blocks(message: Message) -> list[Block]:
    """Return the texts of a message, without empty ones: the service refuses those."""
    if isinstance(message.content, str):
        texts = [message.content]
    else:
        texts = [block.text for block in message.content if block.type == "text"]
    return [_text(text) for text in texts if text.strip()]


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _dump(blocks: Iterable[Any]) -> list[Block]:
    return [block.model_dump(exclude_none=True) for block in blocks]
