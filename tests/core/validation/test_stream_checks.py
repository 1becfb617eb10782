"""Test the check of a provider's stream: a right one passes, and each wrong one is told its rule."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.message_models import ChatRequest, ChatResponse, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock
from amplifier_core.testing import TestCoordinator, check_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

START, DELTA, END = (f"llm:stream_block_{each}" for each in ("start", "delta", "end"))


def block(index: int, kind: str, *texts: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of one block."""
    place = {"request_id": "r", "block_index": index, "block_type": kind}
    deltas = [(DELTA, {**place, "sequence": number, "text": text}) for number, text in enumerate(texts)]
    return [(START, {**place, **more}), *deltas, (END, place)]


RIGHT = [*block(0, "thinking", "hm"), *block(1, "text", "Good", " day"), *block(2, "tool_use", name="look")]


class Streaming:
    """A provider that emits these events, and answers "Good day" after a thought and before a call."""

    name = "streaming"

    def __init__(self, coordinator: Any, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self.coordinator = coordinator
        self.events = events

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        if (request.metadata or {}).get("stream") is not False:
            await self.stream()
        call = ToolCall(id="1", name="look", arguments={})
        blocks = [
            ThinkingBlock(thinking="hm"),
            TextBlock(text="Good day"),
            ToolCallBlock(id="1", name="look", input={}),
        ]
        return ChatResponse(content=blocks, tool_calls=[call])

    async def stream(self) -> None:
        for name, data in self.events:
            await self.coordinator.hooks.emit(name, dict(data))
            await asyncio.sleep(0)


async def check(events: Sequence[tuple[str, dict[str, Any]]], kind: type[Streaming] = Streaming) -> None:
    coordinator = TestCoordinator()
    await check_stream(kind(coordinator, events), coordinator)  # type: ignore[arg-type]  # it lacks what is not asked


async def test_a_provider_that_keeps_the_contract_passes() -> None:
    await check(RIGHT)


async def test_an_aborted_attempt_is_void() -> None:
    aborted = ("llm:stream_aborted", {"request_id": "r", "error": {"type": "StreamError", "msg": "cut"}})
    await check([*block(0, "text", "Goo")[:-1], aborted, *RIGHT])


def without(key: str, number: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the right events, one of them without this key."""
    return [
        (name, {each: value for each, value in data.items() if (at, each) != (number, key)})
        for at, (name, data) in enumerate(RIGHT)
    ]


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([], "must emit deltas"),
        (without("request_id", 1), "must have one request_id"),
        (without("block_index", 4), "must have block_index 1"),
        (without("block_type", 4), "block_type text"),
        (without("sequence", 5), "sequence must count the deltas of a block: 1"),
        (without("name", 7), "the start of a tool call must have its name"),
        ([*block(0, "text", "Good", "", " day")], "must not be empty"),
        ([*block(0, "text", "Good")], "must be the text of the response, 'Good day', not 'Good'"),
        ([*block(0, "prose", "Good day")], "block_type must be one of text, thinking, tool_use"),
        (RIGHT[1:], "must come after the start of its block"),
        (RIGHT[:-1], "the last block must end"),
        ([*RIGHT[:2], *RIGHT[3:]], "a block must end before the next one starts"),
        ([*RIGHT[:-2], *block(2, "tool_use", "{}", name="look")], "must have no deltas"),
    ],
)
async def test_a_stream_that_breaks_a_rule_is_told_which(events: list[Any], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check(events)


async def test_a_request_without_a_stream_has_no_events() -> None:
    class Talkative(Streaming):
        async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
            return await super().complete(ChatRequest(messages=request.messages))

    with pytest.raises(AssertionError, match="must have no stream events"):
        await check(RIGHT, Talkative)


async def test_a_cancelled_request_ends_as_cancelled() -> None:
    class Failing(Streaming):
        async def stream(self) -> None:
            try:
                await super().stream()
            except asyncio.CancelledError:
                raise ConnectionError("closed") from None

    with pytest.raises(AssertionError, match="must raise CancelledError, not ConnectionError: closed"):
        await check(RIGHT, Failing)


async def test_a_cancelled_request_is_not_aborted() -> None:
    class Aborting(Streaming):
        async def stream(self) -> None:
            try:
                await super().stream()
            except asyncio.CancelledError:
                await self.coordinator.hooks.emit("llm:stream_aborted", {"request_id": "r"})
                raise

    with pytest.raises(AssertionError, match="must not emit llm:stream_aborted"):
        await check(RIGHT, Aborting)
