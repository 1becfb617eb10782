"""Make Ollama's request of a `ChatRequest`."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from amplifier_core.llm_errors import InvalidRequestError
from amplifier_core.message_models import Degradation

if TYPE_CHECKING:
    from amplifier_core import ChatRequest, Message, ToolSpec

    from .config import Settings

Block = dict[str, Any]
Lost = list[tuple[str, str, str]]
"""What was requested, what is sent instead, and why."""

UNSEEN = "[An image is left out here: the model sees no images.]"
_INSTRUCTING = ("system", "developer")
_LEVELS: dict[str, bool | str] = {"none": False, "minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_DATA_URL = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)
_KNOWN_OF_PROPERTY = {"type", "items", "description", "enum", "title"}
"""What Ollama reads of a tool's parameter."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request in the form of Ollama, and what it could not keep of the original."""

    model: str
    body: dict[str, Any]
    degradation: Degradation | None


def make_call(request: ChatRequest, settings: Settings, *, with_thinking: bool = True) -> Call:
    """Return the call for a request; without thinking, the model is not told how to think."""
    model = settings.resolve_model(request.model)
    lost: Lost = []
    options: dict[str, Any] = {"num_ctx": settings.context_window, **settings.options}
    chosen = {
        "num_predict": request.max_output_tokens or settings.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": request.stop or None,
    }
    options.update({name: value for name, value in chosen.items() if value is not None})
    body: dict[str, Any] = {"model": model, "messages": _read_messages(request.messages, lost), "options": options}
    if request.tools and request.tool_choice != "none":
        body["tools"] = [_read_tool(tool) for tool in request.tools]
        if request.tool_choice not in (None, "auto"):
            lost.append((f"tool_choice {request.tool_choice}", "auto", "Ollama lets the model choose"))
    if settings.keep_alive is not None:
        body["keep_alive"] = settings.keep_alive
    think = _choose_thinking(request.reasoning_effort, settings, lost)
    if with_thinking and think is not None:
        body["think"] = think
    elif not with_thinking:
        lost.append((f"thinking {think}", "none", "the model does not think"))
    wanted = request.response_format
    if wanted is not None and wanted.type != "text" and "tools" in body:
        lost.append((f"response_format {wanted.type}", "none", "with a format, the model could call no tool"))
    elif wanted is not None and wanted.type == "json_schema":
        body["format"] = wanted.json_schema.get("schema", wanted.json_schema)
    elif wanted is not None and wanted.type == "json":
        body["format"] = "json"
    parts = ("; ".join(dict.fromkeys(each)) for each in zip(*lost, strict=True))
    degradation = Degradation(**dict(zip(("requested", "actual", "reason"), parts, strict=True))) if lost else None
    return Call(model, body, degradation)


def without_images(call: Call) -> Call:
    """Return a call with a text in place of its images: the model has no vision."""
    messages = []
    for message in call.body["messages"]:
        kept = {name: value for name, value in message.items() if name != "images"}
        if "images" in message:
            kept["content"] = "\n\n".join(filter(None, (kept["content"], UNSEEN)))
        messages.append(kept)
    lost = Degradation(requested="images", actual="a text that they are missing", reason="the model has no vision")
    return replace(call, body={**call.body, "messages": messages}, degradation=call.degradation or lost)


def _choose_thinking(effort: str | None, settings: Settings, lost: Lost) -> bool | str | None:
    if effort is None:
        return settings.thinking
    if effort not in _LEVELS:
        lost.append((f"effort {effort}", "effort high", f"the efforts are {', '.join(_LEVELS)}"))
    return _LEVELS.get(effort, "high")


def _read_tool(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool. What Ollama does not read of a parameter's schema becomes a part of its description."""
    parameters = {"type": "object", **tool.parameters}
    properties = {name: _read_property(each) for name, each in parameters.get("properties", {}).items()}
    kept = {name: parameters[name] for name in ("type", "required", "$defs") if name in parameters}
    function = {"name": tool.name, "description": tool.description or ""}
    return {"type": "function", "function": {**function, "parameters": {**kept, "properties": properties}}}


def _read_property(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    kept = {name: value for name, value in schema.items() if name in _KNOWN_OF_PROPERTY and name != "title"}
    more = {name: value for name, value in schema.items() if name not in _KNOWN_OF_PROPERTY}
    if more:
        told = f"JSON Schema: {json.dumps(more, ensure_ascii=False, default=str)}"
        kept["description"] = " ".join(filter(None, (schema.get("description"), told)))
    return kept


def _read_messages(messages: list[Message], lost: Lost) -> list[Block]:
    """Return the messages; a tool's result has the name of its tool: Ollama knows no ids of calls."""
    names: dict[str, str] = {}
    return [each for message in messages for each in _read_message(message, names, lost)]


def _read_message(message: Message, names: dict[str, str], lost: Lost) -> list[Block]:
    blocks = _dump_blocks(message)
    if message.role == "tool" and message.tool_call_id:
        output: Any = message.content if isinstance(message.content, str) else blocks
        return [_tool_message(names.get(message.tool_call_id) or message.name, output, lost)]
    results = [
        _tool_message(names.get(block["tool_call_id"]), block["output"], lost)
        for block in blocks
        if block["type"] == "tool_result"
    ]
    role = "system" if message.role in _INSTRUCTING else "assistant" if message.role == "assistant" else "user"
    one: Block = {"role": role, **_read_content(blocks, lost)}
    calls = [block for block in blocks if block["type"] == "tool_call"]
    names.update((block["id"], block["name"]) for block in calls)
    if calls:
        one["tool_calls"] = [{"function": {"name": each["name"], "arguments": each["input"] or {}}} for each in calls]
    # Thinking with a signature is another service's.
    thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking" and not block.get("signature")]
    if thoughts and role == "assistant":
        one["thinking"] = "\n\n".join(thoughts)
    return [*results, *([one] if one["content"] or len(one) > 2 else [])]


def _dump_blocks(message: Message) -> list[Block]:
    """Return the blocks of a message as dicts, its tool calls among them."""
    if isinstance(message.content, str):
        blocks: list[Block] = [{"type": "text", "text": message.content}]
    else:
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
    known = {block["id"] for block in blocks if block["type"] == "tool_call"}
    for call in getattr(message, "tool_calls", None) or ():
        if call.get("id") not in known:
            name = call.get("tool") or call.get("name") or ""
            blocks.append({"type": "tool_call", "id": call.get("id"), "name": name, "input": call.get("arguments")})
    return blocks


def _tool_message(name: str | None, output: Any, lost: Lost) -> Block:
    if isinstance(output, list) and all(isinstance(each, dict) and "type" in each for each in output):
        content = _read_content(output, lost)
    else:
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
        content = {"content": text}
    return {"role": "tool", **({"tool_name": name} if name else {}), **content}


def _read_content(blocks: list[Block], lost: Lost) -> Block:
    """Return the text of blocks, and their images as bytes: the SDK takes a text for the path of a file."""
    texts: list[str] = []
    images: list[bytes] = []
    for block in blocks:
        if block["type"] == "text" and block["text"].strip():
            texts.append(block["text"])
        elif block["type"] == "image":
            source = block["source"]
            inline = _DATA_URL.fullmatch(str(source.get("url", "")))
            source = {**source, **inline.groupdict()} if inline else source
            media_type, data = str(source.get("media_type", "")), source.get("data")
            if media_type.startswith("text/") and data is not None:
                is_text = source.get("type") == "text"
                texts.append(str(data) if is_text else _decode(data).decode(errors="replace"))
            elif data is not None and (not media_type or media_type.startswith("image/")):
                images.append(_decode(data))
            else:
                lost.append((media_type or "an image by its address", "none", "Ollama takes images as data, and text"))
    return {"content": "\n\n".join(texts), **({"images": images} if images else {})}


def _decode(data: Any) -> bytes:
    try:
        return b64decode(data)
    except (ValueError, TypeError):
        problem = "the data of an image or a document is not base64"
        raise InvalidRequestError(problem, provider="ollama") from None
