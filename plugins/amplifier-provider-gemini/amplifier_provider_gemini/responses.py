"""Read the answers of the service: their pieces as they come, and the whole at their end."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from amplifier_core.llm_errors import ContentFilterError, InvalidToolCallError, StreamError
from amplifier_core.message_models import ChatResponse, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock, Usage
from amplifier_providers.calls import take_input

from .content import SIGNATURE
from .models import compute_cost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from google.genai import types

    from amplifier_providers.streaming import BlockStream

    from .requests import Call

FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "ESCALATION": "content_filter",
}
"""The words of the kernel for those of the service; another word is written small."""
_BROKEN_CALLS = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE")


@dataclass(slots=True)
class Part:
    """A block of an answer while it comes: `thinking`, `text` or `tool_use`; `signature` is base64."""

    kind: str
    text: str = ""
    signature: str = ""
    call_id: str = ""
    name: str = ""
    given: dict[str, Any] = field(default_factory=dict)

    def read(self) -> Any:
        """Return the block of the kernel. Raises `InvalidToolCallError`."""
        more: dict[str, Any] = {SIGNATURE: self.signature} if self.signature else {}
        if self.kind == "thinking":
            return ThinkingBlock(thinking=self.text, **more)
        if self.kind == "text":
            return TextBlock(text=self.text, **more)
        return ToolCallBlock(id=self.call_id, name=self.name, input=take_input(self.given, self.name), **more)


class Answer:
    """An answer while it comes: its parts in their order, its reason to end, and its usage."""

    def __init__(self, blocks: BlockStream) -> None:
        self._blocks = blocks
        self.parts: list[Part] = []
        self.reason = ""
        self.usage: types.GenerateContentResponseUsageMetadata | None = None
        self.model = ""
        self.id = ""

    async def take(self, piece: types.GenerateContentResponse) -> None:
        """Take one more piece, and pass it on. Raises `ContentFilterError` for a request that was blocked."""
        self.usage = piece.usage_metadata or self.usage
        self.model, self.id = piece.model_version or self.model, piece.response_id or self.id
        if piece.prompt_feedback is not None and piece.prompt_feedback.block_reason is not None:
            why = piece.prompt_feedback.block_reason_message or piece.prompt_feedback.block_reason.value
            raise ContentFilterError(f"the service blocked the request: {why}")
        for candidate in (piece.candidates or [])[:1]:
            for part in (candidate.content.parts if candidate.content else None) or ():
                await self._take_part(part)
            if candidate.finish_reason is not None:
                self.reason = candidate.finish_reason.value

    async def end(self) -> None:
        """End the last part."""
        if self.parts:
            await self._blocks.end()

    def read_usage(self, model: str) -> Usage | None:
        """Return the tokens; cached ones are among those of the input, and counted apart, too."""
        told = self.usage
        if told is None or (told.prompt_token_count is None and told.candidates_token_count is None):
            return None
        given = (told.prompt_token_count or 0) + (told.tool_use_prompt_token_count or 0)
        written = (told.candidates_token_count or 0) + (told.thoughts_token_count or 0)
        usage = Usage(
            input_tokens=given,
            output_tokens=written,
            total_tokens=given + written,
            reasoning_tokens=told.thoughts_token_count,
            cache_read_tokens=told.cached_content_token_count,
        )
        usage.cost_usd = compute_cost(model, usage)
        return usage

    async def _take_part(self, part: types.Part) -> None:
        signature = b64encode(part.thought_signature).decode() if part.thought_signature else ""
        call = part.function_call
        if call is not None:
            name = call.name or ""
            call_id = call.id or f"call_{uuid4().hex[:16]}"
            await self._begin(Part("tool_use", "", signature, call_id, name, dict(call.args or {})), name=name)
        elif part.text is not None:
            kind, last = "thinking" if part.thought else "text", self.parts[-1] if self.parts else None
            if last is None or last.kind != kind or (last.signature and part.text):
                if not part.text and not signature:
                    return
                await self._begin(Part(kind))
            self.parts[-1].text += part.text
            self.parts[-1].signature = signature or self.parts[-1].signature
            await self._blocks.delta(part.text)

    async def _begin(self, part: Part, **more: str) -> None:
        await self.end()
        self.parts.append(part)
        await self._blocks.start(part.kind, **more)


async def follow(
    pieces: AsyncIterator[types.GenerateContentResponse], blocks: BlockStream, on_piece: Callable[[], None], model: str
) -> Answer:
    """Pass on the pieces of an answer, and return it; `on_piece` is called at each.

    Raises `StreamError` for an answer without an end, `InvalidToolCallError`, and `ContentFilterError`.
    """
    answer = Answer(blocks)
    async for piece in pieces:  # until the connection ends: earlier models give a reason for the end with each piece
        on_piece()
        try:
            await answer.take(piece)
        finally:  # also of a request that was blocked
            blocks.note_usage(lambda: answer.read_usage(model))
    if not answer.reason:
        raise StreamError("the answer ended before it was complete")
    if answer.reason in _BROKEN_CALLS:
        raise InvalidToolCallError(f"the model called a tool in a broken form: {answer.reason}", retryable=True)
    await answer.end()
    return answer


def read_answer(answer: Answer, call: Call) -> ChatResponse:
    """Return an answer in the form of the kernel. Raises `InvalidToolCallError`."""
    content = [part.read() for part in answer.parts]
    calls = [ToolCall(id=each.id, name=each.name, arguments=each.input) for each in content if each.type == "tool_call"]
    reason = FINISH_REASONS.get(answer.reason, answer.reason.lower())
    return ChatResponse(
        content=content,
        tool_calls=calls or None,
        degradation=call.degradation,
        finish_reason="tool_calls" if calls and reason == "stop" else reason,
        metadata={"model": answer.model or call.model, "message_id": answer.id},
    )
