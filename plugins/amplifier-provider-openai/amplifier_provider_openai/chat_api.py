"""Speak the Chat Completions API, in the parts that most services have in common.

Thinking comes from services that send it beside the text (`reasoning_content` or `reasoning`); none takes it back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.llm_errors import StreamError
from amplifier_core.message_models import ChatResponse, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock, Usage
from amplifier_providers.calls import read_input, sendable_name
from amplifier_providers.provider import BROKEN_OFF

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
from .models import compute_cost, is_reasoning

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk

    from amplifier_core import ChatRequest, Message
    from amplifier_providers.streaming import BlockStream

    from .config import Settings
    from .content import Block

_IMAGES = "images"
"""The images of a result, until they have a place."""
_REASONING_FIELDS = ("reasoning_content", "reasoning")
FINISH_REASONS = {"function_call": "tool_calls"}


def make_call(request: ChatRequest, settings: Settings) -> Call:
    """Return the call for a request; earlier thinking is left out."""
    model = settings.resolve_model(request.model)
    lost: Lost = []
    messages = _place_images([each for message in request.messages for each in _read_message(message)])
    body: dict[str, Any] = {"model": model, "messages": messages, "stream_options": {"include_usage": True}}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description or "",
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
        if request.tool_choice is not None:
            body["tool_choice"] = _read_tool_choice(request.tool_choice)
    if most := request.max_output_tokens or settings.max_output_tokens:
        # Services beside OpenAI know the older name.
        body["max_tokens" if settings.find_address() else "max_completion_tokens"] = most
    wanted = request.response_format
    if wanted is not None and wanted.type != "text" and request.tools and settings.find_address():
        lost.append((f"response_format {wanted.type}", "none", "many services let a model with a format call no tool"))
    elif (schema := read_schema(request)) is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif wanted is not None and wanted.type == "json":
        body["response_format"] = {"type": "json_object"}
    if request.stop:
        body["stop"] = request.stop
    effort = request.reasoning_effort or settings.effort
    if effort:
        body["reasoning_effort"] = effort
    sampling = {"temperature": request.temperature, "top_p": request.top_p}
    given = {name: value for name, value in sampling.items() if value is not None}
    if given and is_reasoning(model) and effort != "none":
        lost.append((", ".join(given), "none", "the model takes none while it reasons"))
    else:
        body.update(given)
    return Call(model, body, join_lost(lost))


def _read_message(message: Message) -> list[Block]:
    blocks = read_blocks(message)
    if message.role == "tool" and message.tool_call_id:
        content = message.content if isinstance(message.content, str) else blocks
        return [_tool_message(message.tool_call_id, content)]
    if message.role == "assistant":
        return _assistant_message(blocks)
    results = [
        _tool_message(block["tool_call_id"], block["output"]) for block in blocks if block["type"] == "tool_result"
    ]
    parts = [part for block in blocks if (part := _input_part(block)) is not None]
    role = "system" if message.role in INSTRUCTING else "user"
    # A text alone is sent as text: not every service knows parts.
    content = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    return [*results, *([{"role": role, "content": content}] if parts else [])]


def _assistant_message(blocks: list[Block]) -> list[Block]:
    text = "\n\n".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {
                "name": sendable_name(block["name"]),
                "arguments": json.dumps(block["input"], ensure_ascii=False),
            },
        }
        for block in blocks
        if block["type"] == "tool_call"
    ]
    if not text and not calls:
        return []
    return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]


def _tool_message(call_id: str, output: Any) -> Block:
    images: list[Block] = []
    if isinstance(output, list) and all(isinstance(each, dict) and "type" in each for each in output):
        images = [part for each in output if each["type"] == "image" and (part := _input_part(each)) is not None]
        output = "\n".join(each["text"] if each["type"] == "text" else f"[{each['type']}]" for each in output)
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "content": read_text(output),
        **({_IMAGES: images} if images else {}),
    }


def _place_images(messages: list[Block]) -> list[Block]:
    """Return messages with the images of results in a message of the user: the API takes none in a result.

    It comes after the last of the results in a row, as no other message may stand between them.
    """
    placed: list[Block] = []
    waiting: list[Block] = []
    for message in [*messages, None]:
        if waiting and (message is None or message["role"] != "tool"):
            placed.append({"role": "user", "content": waiting})
            waiting = []
        if message is not None:
            if images := message.pop(_IMAGES, None):
                waiting += [{"type": "text", "text": f"The images of the result {message['tool_call_id']}:"}, *images]
            placed.append(message)
    return placed


def _input_part(block: Block) -> Block | None:
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    if block["type"] != "image":
        return None
    media = read_media(block["source"])
    if media.is_image:
        return {"type": "image_url", "image_url": {"url": media.url}}
    place = {"file_id": media.file_id} if media.file_id else {"filename": "document", "file_data": media.url}
    return {"type": "file", "file": place}


def _read_tool_choice(choice: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(choice, dict):
        name = choice.get("name") or (choice.get("function") or {}).get("name")
        return {"type": "function", "function": {"name": name}} if name else str(choice.get("type", "auto"))
    if choice in ("auto", "none", "required"):
        return choice
    return "required" if choice == "any" else {"type": "function", "function": {"name": choice}}


@dataclass(slots=True)
class Part:
    """A block of an answer while it comes: thinking, text, or the input of a tool call."""

    kind: str
    index: int = -1
    text: str = ""
    call_id: str = ""
    name: str = ""


class Answer:
    """An answer while it comes: its parts in their order, its reason to end, and its usage."""

    def __init__(self, blocks: BlockStream) -> None:
        self._blocks = blocks
        self.parts: list[Part] = []
        self.model = ""
        self.id = ""
        self.reason: str | None = None
        self.has_role = False
        self.is_counted = False
        """Whether the usage came behind all parts, or behind the role of an answer without any: its end, for services
        without a word for it."""
        self.is_refusal = False
        self.usage: CompletionUsage | None = None

    async def take(self, chunk: ChatCompletionChunk) -> None:
        """Take one more piece, and pass it on."""
        self.model, self.id = chunk.model or self.model, chunk.id or self.id
        self.usage = chunk.usage or self.usage
        if chunk.choices:
            self.is_counted = False
        elif chunk.usage is not None:
            self.is_counted = self.has_role or bool(self.parts)
        for choice in chunk.choices[:1]:
            delta = choice.delta
            self.has_role = self.has_role or bool(delta.role)
            for name in _REASONING_FIELDS:
                if isinstance(thought := getattr(delta, name, None), str):
                    await self._say("thinking", thought)
                    break
            await self._say("text", delta.content)
            await self._say("text", delta.refusal)
            self.is_refusal = self.is_refusal or bool(delta.refusal)
            for call in delta.tool_calls or ():
                await self._add_to_call(call)
            self.reason = choice.finish_reason or self.reason

    async def end(self) -> None:
        """End the last part."""
        if self.parts:
            await self._blocks.end()

    def read_usage(self, model: str) -> Usage | None:
        """Return the tokens; cached ones are among those of the input, and counted apart, too."""
        told = self.usage
        if told is None:
            return None
        given, written = told.prompt_tokens_details, told.completion_tokens_details
        usage = Usage(
            input_tokens=told.prompt_tokens,
            output_tokens=told.completion_tokens,
            total_tokens=told.total_tokens or told.prompt_tokens + told.completion_tokens,
            reasoning_tokens=written.reasoning_tokens if written else None,
            cache_read_tokens=given.cached_tokens if given else None,
            cache_write_tokens=given.cache_write_tokens if given else None,
        )
        usage.cost_usd = compute_cost(self.model or model, usage)
        return usage

    async def _say(self, kind: str, text: str | None) -> None:
        if text:
            if not self.parts or self.parts[-1].kind != kind:
                await self._begin(Part(kind))
            self.parts[-1].text += text
            await self._blocks.delta(text)

    async def _add_to_call(self, call: Any) -> None:
        function = call.function
        same = (each for each in reversed(self.parts) if each.kind == "tool_use" and each.index == call.index)
        part = next(same, None)
        is_named = bool(call.id and function and function.name)
        if part is None or (is_named and call.id != part.call_id):  # some services count from 0 again
            part = Part("tool_use", call.index, call_id=call.id or f"call_{call.index}", name=function.name or "")
            await self._begin(part, name=part.name)
        part.text += (function.arguments if function else None) or ""

    async def _begin(self, part: Part, **more: str) -> None:
        await self.end()
        self.parts.append(part)
        await self._blocks.start(part.kind, **more)


async def follow(
    stream: AsyncIterable[ChatCompletionChunk], blocks: BlockStream, on_begin: Callable[[], None], model: str
) -> Answer:
    """Pass on the pieces of an answer, and return it; `on_begin` is called at its first one.

    Raises `StreamError` for an answer without an end.
    """
    answer = Answer(blocks)
    async for chunk in stream:  # the SDK reads until [DONE]: a reason, or a usage, may come with each chunk
        on_begin()
        await answer.take(chunk)
        if chunk.usage is not None:
            blocks.note_usage(lambda: answer.read_usage(model))
    if answer.reason is None and not answer.is_counted:
        raise StreamError("the answer ended before it was complete")
    await answer.end()
    return answer


def read_answer(answer: Answer, call: Call) -> ChatResponse:
    """Return an answer in the form of the kernel. Raises `InvalidToolCallError`."""
    reason = FINISH_REASONS.get(answer.reason or "", answer.reason or "stop")
    content: list[Any] = []
    for part in answer.parts:
        if part.kind == "thinking":
            content.append(ThinkingBlock(thinking=part.text))
        elif part.kind == "text":
            content.append(TextBlock(text=part.text))
        else:
            is_cut = reason.lower() in ("length", *BROKEN_OFF) and part is answer.parts[-1]
            if (given := read_input(part.text, part.name, is_cut=is_cut)) is not None:
                content.append(ToolCallBlock(id=part.call_id, name=part.name, input=given))
    calls = [ToolCall(id=each.id, name=each.name, arguments=each.input) for each in content if each.type == "tool_call"]
    if answer.is_refusal:
        reason = "refusal"
    elif calls and reason == "stop":  # some services say so
        reason = "tool_calls"
    return ChatResponse(
        content=content,
        tool_calls=calls or None,
        degradation=call.degradation,
        finish_reason=reason,
        metadata={"model": answer.model or call.model, "message_id": answer.id},
    )
