"""Translate messages into the form of the service.

The service knows two roles, and messages of one role in a row are one. Parts of an answer go back with the thought
signatures that they came with: kept as `thought_signature` in the block, base64.
"""

from __future__ import annotations

import json
import mimetypes
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from amplifier_core.llm_errors import InvalidRequestError
from amplifier_providers.calls import sendable_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core import Message

Block = dict[str, Any]

SIGNATURE = "thought_signature"
_INSTRUCTING = ("system", "developer")
_NO_SIGNATURE = b"skip_thought_signature_validator"
"""What the service takes for a call without a signature: of another model, or of before there were signatures."""
_DATA_URL = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)


class Conversation:
    """A conversation in the form of the service; without `signed`, no earlier signature is in it."""

    def __init__(self, messages: Sequence[Message], *, signed: bool, needs_signature: bool) -> None:
        self.system: list[str] = []
        self.contents: list[dict[str, Any]] = []
        self._names: dict[str, str] = {}
        self._signed = signed
        self._needs_signature = needs_signature
        opening = True
        for message in messages:
            blocks = _dump_blocks(message)
            opening = opening and message.role in _INSTRUCTING
            if opening:
                self.system += [block["text"] for block in blocks if _is_said(block)]
            elif message.role in _INSTRUCTING:
                reminders = [f"<system-reminder>\n{block['text']}\n</system-reminder>" for block in blocks]
                self._add("user", [{"text": text} for text in reminders])
            elif message.role == "assistant":
                self._add("model", self._answer_parts(blocks))
            elif message.role == "tool" and message.tool_call_id:
                output: Any = message.content if isinstance(message.content, str) else blocks
                self._add("user", [self._result_part(message.tool_call_id, output, message.name)])
            else:
                self._add("user", [part for block in blocks for part in self._user_parts(block)])

    def _add(self, role: str, parts: list[Block]) -> None:
        if not parts:
            return
        if not self.contents or self.contents[-1]["role"] != role:
            self.contents.append({"role": role, "parts": []})
        self.contents[-1]["parts"] += parts

    def _answer_parts(self, blocks: list[Block]) -> list[Block]:
        parts: list[Block] = []
        for block in blocks:
            given = block.get(SIGNATURE) if self._signed else None
            mark = {SIGNATURE: _decode(given)} if given else {}
            if block["type"] == "text" and (mark or _is_said(block)):
                parts.append({"text": block["text"], **mark})
            elif block["type"] == "thinking" and mark:
                parts.append({"text": block["thinking"], "thought": True, **mark})
            elif block["type"] == "tool_call":
                self._names[block["id"]] = block["name"]
                call = {"id": block["id"], "name": sendable_name(block["name"]), "args": block["input"] or {}}
                parts.append({"function_call": call, **mark})
        calls = [part for part in parts if "function_call" in part]
        if calls and self._needs_signature and not any(SIGNATURE in part for part in calls):
            calls[0][SIGNATURE] = _NO_SIGNATURE
        return parts

    def _user_parts(self, block: Block) -> list[Block]:
        if block["type"] == "tool_result":
            return [self._result_part(block["tool_call_id"], block["output"], None)]
        if block["type"] == "image":
            return [_media_part(block["source"])]
        return [{"text": block["text"]}] if block["type"] == "text" and _is_said(block) else []

    def _result_part(self, call_id: str, output: Any, name: str | None) -> Block:
        called = sendable_name(self._names.get(call_id) or name or "tool")
        response: dict[str, Any] = {"id": call_id, "name": called}
        if isinstance(output, list) and all(isinstance(each, dict) and "type" in each for each in output):
            media = [_media_part(each["source"]) for each in output if each["type"] == "image"]
            if media:
                response["parts"] = media
            output = "\n".join(each["text"] for each in output if each["type"] == "text")
        # The dump makes plain JSON of anything: the SDK refuses other objects.
        plain = output if isinstance(output, str) else json.loads(json.dumps(output, default=str))
        return {"function_response": {**response, "response": {"output": plain}}}


def _is_said(block: Block) -> bool:
    return block["type"] == "text" and bool(block["text"].strip())


def _media_part(source: dict[str, Any]) -> Block:
    """Return an image or a document: its bytes, or its address."""
    url = str(source.get("url") or source.get("file_id") or "")
    inline = _DATA_URL.fullmatch(url)
    source = {**source, **inline.groupdict()} if inline else source
    media_type, data = str(source.get("media_type") or ""), source.get("data")
    if data is None:
        guessed = media_type or mimetypes.guess_type(url)[0]
        return {"file_data": {"file_uri": url, **({"mime_type": guessed} if guessed else {})}}
    if source.get("type") == "text":
        data = b64encode(str(data).encode()).decode()
    return {"inline_data": {"mime_type": media_type or "image/png", "data": _decode(data)}}


def _dump_blocks(message: Message) -> list[Block]:
    """Return the blocks of a message as dicts, its tool calls among them."""
    dumped = [] if isinstance(message.content, str) else message.content
    blocks = [block.model_dump(exclude_none=True) for block in dumped]
    if isinstance(message.content, str):
        blocks = [{"type": "text", "text": message.content}]
    known = {block["id"] for block in blocks if block["type"] == "tool_call"}
    for call in getattr(message, "tool_calls", None) or ():
        if call.get("id") not in known:
            name = call.get("tool") or call.get("name")
            blocks.append({"type": "tool_call", "id": call.get("id"), "name": name, "input": call.get("arguments")})
    return blocks


def _decode(data: Any) -> bytes:
    try:
        return b64decode(data)
    except (ValueError, TypeError):
        problem = "the data of an image or a document is not base64"
        raise InvalidRequestError(problem, provider="gemini") from None
