"""Speak the Responses API: nothing is stored at the service, and reasoning goes back with the next request, encrypted.

A block of thinking keeps the item of its reasoning as `content`: the encrypted content and the id.
"""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.llm_errors import StreamError
from amplifier_core.message_models import ChatResponse, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock, Usage
from amplifier_providers.calls import read_input, sendable_name
from amplifier_providers.provider import BROKEN_OFF
from amplifier_providers.streaming import BlockStream, UntilEnd

from .content import (
    INSTRUCTING,
    Call,
    Lost,
    join_lost,
    read_blocks,
    read_media,
    read_schema,
    read_text,
)
from .errors import Refusal
from .models import compute_cost, is_reasoning

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent

    from amplifier_core import ChatRequest, Message

    from .config import Settings
    from .content import Block

_KINDS = {"reasoning": "thinking", "message": "text", "function_call": "tool_use"}
_DELTAS = (
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
)
_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}


def make_call(request: ChatRequest, settings: Settings, *, with_reasoning: bool = True) -> Call:
    """Return the call for a request; without reasoning, items of earlier reasoning are left out."""
    model = settings.resolve_model(request.model)
    lost: Lost = []
    opening = 0
    while opening < len(request.messages) and request.messages[opening].role in INSTRUCTING:
        opening += 1
    instructions = [
        block["text"]
        for message in request.messages[:opening]
        for block in read_blocks(message)
        if block["type"] == "text"
    ]
    items = [item for message in request.messages[opening:] for item in _read_items(message, with_reasoning)]
    body: dict[str, Any] = {"model": model, "input": items, "store": False, "include": ["reasoning.encrypted_content"]}
    if instructions:
        body["instructions"] = "\n\n".join(instructions)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
        if request.tool_choice is not None:
            body["tool_choice"] = _read_tool_choice(request.tool_choice)
    if most := request.max_output_tokens or settings.max_output_tokens:
        body["max_output_tokens"] = most
    if (schema := read_schema(request)) is not None:
        body["text"] = {"format": {"type": "json_schema", **schema}}
    elif request.response_format is not None and request.response_format.type == "json":
        body["text"] = {"format": {"type": "json_object"}}
    _add_reasoning(body, request, settings, lost)
    if user := (request.metadata or {}).get("user_id"):
        body["safety_identifier"] = str(user)
    if request.stop:
        lost.append(("stop", "none", "the Responses API has no stop sequences"))
    if not with_reasoning:
        lost.append(("earlier reasoning", "none", "the service refused it: the model or the account has changed"))
    body["prompt_cache_key"] = _make_cache_key(body)
    return Call(model, body, join_lost(lost))


def _add_reasoning(body: dict[str, Any], request: ChatRequest, settings: Settings, lost: Lost) -> None:
    """Add the effort, and what goes with it: a model that reasons takes no temperature."""
    effort = request.reasoning_effort or settings.effort
    reasoning = {"effort": effort, "summary": settings.reasoning_summary}
    if chosen := {name: value for name, value in reasoning.items() if value}:
        body["reasoning"] = chosen
    sampling = {"temperature": request.temperature, "top_p": request.top_p}
    given = {name: value for name, value in sampling.items() if value is not None}
    if given and is_reasoning(body["model"]) and effort != "none":
        lost.append((", ".join(given), "none", "the model takes none while it reasons"))
    else:
        body.update(given)


def _make_cache_key(body: dict[str, Any]) -> str:
    """Return one key for all requests that begin alike: a session's, and those of its forks."""
    beginning = [body["model"], body.get("instructions"), body.get("tools"), body["input"][:1]]
    return sha256(json.dumps(beginning, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _read_items(message: Message, with_reasoning: bool) -> list[Block]:
    """Return the items of a message, in their order."""
    if message.role == "tool" and message.tool_call_id:
        content = message.content if isinstance(message.content, str) else read_blocks(message)
        return [_call_output(message.tool_call_id, content)]
    blocks = read_blocks(message)
    if message.role == "assistant":
        answer = [item for block in blocks if (item := _assistant_item(block, with_reasoning)) is not None]
        while answer and answer[-1]["type"] == "reasoning":  # refused without the item after it, which was cut off
            answer.pop()
        return answer
    items = [_call_output(block["tool_call_id"], block["output"]) for block in blocks if block["type"] == "tool_result"]
    parts = [part for block in blocks if (part := _input_part(block)) is not None]
    role = "developer" if message.role in INSTRUCTING else "user"
    return [*items, *([{"type": "message", "role": role, "content": parts}] if parts else [])]


def _assistant_item(block: Block, with_reasoning: bool) -> Block | None:
    """Return a block of an answer as an item; None for thinking of another service."""
    match block["type"]:
        case "text":
            phase = {"phase": block["phase"]} if block.get("phase") else {}
            return {"type": "message", "role": "assistant", "content": block["text"], **phase}
        case "tool_call":
            given = json.dumps(block["input"], ensure_ascii=False)
            name = sendable_name(block["name"])
            return {"type": "function_call", "call_id": block["id"], "name": name, "arguments": given}
        case "thinking" if with_reasoning and len(block.get("content") or ()) == 2:
            encrypted, item_id = block["content"]
            summary = [{"type": "summary_text", "text": block["thinking"]}] if block["thinking"] else []
            return {"type": "reasoning", "id": item_id, "encrypted_content": encrypted, "summary": summary}
    return None


def _call_output(call_id: str, output: Any) -> Block:
    if isinstance(output, list) and all(isinstance(each, dict) and "type" in each for each in output):
        return {
            "type": "function_call_output",
            "call_id": call_id,
            "output": [part for block in output if (part := _input_part(block)) is not None],
        }
    return {"type": "function_call_output", "call_id": call_id, "output": read_text(output)}


def _input_part(block: Block) -> Block | None:
    if block["type"] == "text":
        return {"type": "input_text", "text": block["text"]}
    if block["type"] != "image":
        return None
    media = read_media(block["source"])
    if media.is_image:
        place = {"file_id": media.file_id} if media.file_id else {"image_url": media.url}
        return {"type": "input_image", "detail": "auto", **place}
    if media.file_id:
        return {"type": "input_file", "file_id": media.file_id}
    if media.url.startswith("data:"):
        return {"type": "input_file", "filename": "document", "file_data": media.url}
    return {"type": "input_file", "file_url": media.url}


def _read_tool_choice(choice: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(choice, dict):
        name = choice.get("name") or (choice.get("function") or {}).get("name")
        return {"type": "function", "name": name} if name else str(choice.get("type", "auto"))
    if choice in ("auto", "none", "required"):
        return choice
    return "required" if choice == "any" else {"type": "function", "name": choice}


async def follow(
    stream: AsyncIterable[ResponseStreamEvent], blocks: BlockStream, on_begin: Callable[[], None]
) -> tuple[Response, list[ResponseOutputItem]]:
    """Pass on the pieces of an answer; return the whole and its items. `on_begin` is called at the first item.

    Raises `Refusal` for an error in the stream, and `StreamError` for an answer without an end.
    """
    items: list[ResponseOutputItem] = []
    whole: Response | None = None
    pieces = UntilEnd(stream)
    async for event in pieces:
        if event.type == "response.output_item.added":
            on_begin()
            name = {"name": event.item.name} if event.item.type == "function_call" else {}
            await blocks.start(_KINDS.get(event.item.type), **name)
        elif event.type in _DELTAS:
            await blocks.delta(getattr(event, "delta", ""))
        elif event.type == "response.reasoning_summary_part.added" and event.summary_index > 0:
            await blocks.delta("\n\n")
        elif event.type == "response.output_item.done":
            items.append(event.item)
            await blocks.end()
        elif event.type in ("response.completed", "response.incomplete"):
            whole, pieces.is_whole = event.response, True
            blocks.note_usage(partial(_read_usage, whole))
        elif event.type == "response.failed":
            blocks.note_usage(partial(_read_usage, event.response))
            error = event.response.error
            raise Refusal(error.code if error else None, error.message if error else "")
        elif event.type == "error":
            raise Refusal(event.code, event.message)
    if whole is None:
        raise StreamError("the answer ended before it was complete")
    return whole, whole.output or items


def read_answer(whole: Response, items: list[ResponseOutputItem], call: Call) -> ChatResponse:
    """Return an answer in the form of the kernel. Raises `InvalidToolCallError`."""
    reason = "stop"
    if whole.status == "incomplete":
        cause = whole.incomplete_details.reason if whole.incomplete_details else None
        reason = _INCOMPLETE.get(cause or "", "incomplete")
    content: list[Any] = []
    for item in items:
        if item.type == "reasoning":
            texts = [part.text for part in item.summary] or [part.text for part in item.content or ()]
            kept = [item.encrypted_content, item.id] if item.encrypted_content else None
            content.append(ThinkingBlock(thinking="\n\n".join(texts), content=kept))
        elif item.type == "message":
            said = "".join(part.text if part.type == "output_text" else part.refusal for part in item.content)
            phase = {"phase": item.phase} if item.phase else {}
            content.append(TextBlock.model_validate({"text": said, **phase}))
            if any(part.type == "refusal" for part in item.content):
                reason = "refusal"
        elif item.type == "function_call":
            is_cut = reason in ("length", *BROKEN_OFF) and item is items[-1]
            given = read_input(item.arguments, item.name, is_cut=is_cut)
            if given is not None:
                content.append(ToolCallBlock(id=item.call_id, name=item.name, input=given))
    calls = [ToolCall(id=each.id, name=each.name, arguments=each.input) for each in content if each.type == "tool_call"]
    return ChatResponse(
        content=content,
        tool_calls=calls or None,
        degradation=call.degradation,
        finish_reason="tool_calls" if calls and reason == "stop" else reason,
        metadata={"model": whole.model, "message_id": whole.id},
    )


def _read_usage(whole: Response) -> Usage | None:
    """Return the tokens; cached ones are among those of the input, and counted apart, too."""
    told = whole.usage
    if told is None:
        return None
    details = told.input_tokens_details
    written = getattr(details, "cache_write_tokens", None)
    lifetimes = getattr(details, "cache_write_tokens_details", None)
    usage = Usage(
        input_tokens=told.input_tokens,
        output_tokens=told.output_tokens,
        total_tokens=told.total_tokens or told.input_tokens + told.output_tokens,
        reasoning_tokens=getattr(told.output_tokens_details, "reasoning_tokens", None),
        cache_read_tokens=getattr(details, "cached_tokens", None),
        cache_write_tokens=written,
    )
    longer = lifetimes.ttl_12h_tokens if lifetimes else 0
    tier = whole.service_tier
    usage.cost_usd = compute_cost(str(whole.model), usage, kept_longer=longer, tier=tier)
    return usage
