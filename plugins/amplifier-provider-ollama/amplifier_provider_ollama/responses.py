"""Read the answers of Ollama: their pieces as they come, and the whole at their end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from amplifier_core.llm_errors import StreamError
from amplifier_core.message_models import ChatResponse, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock, Usage
from amplifier_providers.calls import take_input
from amplifier_providers.streaming import BlockStream, UntilEnd

from .models import compute_cost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ollama import ChatResponse as Piece

    from .requests import Call


@dataclass(slots=True)
class Part:
    """A block of an answer while it comes: `thinking`, `text` or `tool_use`."""

    kind: str
    text: str = ""
    name: str = ""
    given: dict[str, Any] = field(default_factory=dict)


class Answer:
    """An answer while it comes: its parts in their order, and its last piece."""

    def __init__(self, blocks: BlockStream) -> None:
        self._blocks = blocks
        self.parts: list[Part] = []
        self.last: Piece | None = None

    async def take(self, piece: Piece) -> None:
        """Take one more piece, and pass it on."""
        for kind, text in (("thinking", piece.message.thinking), ("text", piece.message.content)):
            if text:
                if not self.parts or self.parts[-1].kind != kind:
                    await self._begin(Part(kind))
                self.parts[-1].text += text
                await self._blocks.delta(text)
        for call in piece.message.tool_calls or ():
            name = call.function.name
            await self._begin(Part("tool_use", name=name, given=dict(call.function.arguments)), name=name)
        if piece.done:
            self.last = piece
            await self.end()

    async def end(self) -> None:
        """End the last part."""
        if self.parts:
            await self._blocks.end()

    async def _begin(self, part: Part, **more: str) -> None:
        await self.end()
        self.parts.append(part)
        await self._blocks.start(part.kind, **more)


async def follow(pieces: AsyncIterator[Piece], blocks: BlockStream, on_piece: Callable[[], None]) -> Answer:
    """Pass on the pieces of an answer, and return it; `on_piece` is called at each.

    Raises `StreamError` for an answer without an end.
    """
    answer, until_end = Answer(blocks), UntilEnd(pieces)
    async for piece in until_end:
        on_piece()
        await answer.take(piece)
        until_end.is_whole = answer.last is not None
    if answer.last is None:
        raise StreamError("the answer ended before it was complete")
    return answer


def read_answer(answer: Answer, call: Call, address: str) -> ChatResponse:
    """Return an answer in the form of the kernel; Ollama gives calls no ids, so each gets a new one.

    Raises `InvalidToolCallError`.
    """
    last = answer.last
    content: list[Any] = []
    for part in answer.parts:
        if part.kind == "thinking":
            content.append(ThinkingBlock(thinking=part.text))
        elif part.kind == "text":
            content.append(TextBlock(text=part.text))
        else:
            content.append(
                ToolCallBlock(id=f"call_{uuid4().hex[:16]}", name=part.name, input=take_input(part.given, part.name))
            )
    calls = [ToolCall(id=each.id, name=each.name, arguments=each.input) for each in content if each.type == "tool_call"]
    reason = (last.done_reason if last else None) or "stop"
    given, written = (last.prompt_eval_count, last.eval_count) if last else (None, None)
    usage = None
    if given is not None or written is not None:
        usage = Usage(
            input_tokens=given or 0,
            output_tokens=written or 0,
            total_tokens=(given or 0) + (written or 0),
            cost_usd=compute_cost(call.model, address),
        )
    return ChatResponse(
        content=content,
        tool_calls=calls or None,
        usage=usage,
        degradation=call.degradation,
        finish_reason="tool_calls" if calls and reason == "stop" else reason,
        metadata={"model": (last.model if last else None) or call.model},
    )
