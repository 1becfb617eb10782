"""Test a provider that streams: its blocks are shown as they come, and a stop keeps its text."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.message_models import ChatResponse, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

START, DELTA, END, ABORTED = (f"llm:stream_{each}" for each in ("block_start", "block_delta", "block_end", "aborted"))


class Speech:
    """A response of the model, streamed block by block; at a `None` it waits until it is cancelled."""

    def __init__(self, room: Any, *blocks: tuple[str, list[str | None]], response: ChatResponse | None = None) -> None:
        self.room, self.blocks, self.response = room, blocks, response
        self.waits, self.was_cancelled = asyncio.Event(), False

    async def __call__(self) -> ChatResponse | None:
        for index, (kind, pieces) in enumerate(self.blocks):
            place = {"request_id": "r", "block_index": index, "block_type": kind}
            await self.room.hooks.emit(START, place)
            for sequence, piece in enumerate(pieces):
                if piece is None:
                    await self.wait()
                await self.room.hooks.emit(DELTA, {**place, "sequence": sequence, "text": piece})
            await self.room.hooks.emit(END, place)
        return self.response

    async def wait(self) -> None:
        self.waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def shown(room: Any) -> list[tuple[str, int, Any]]:
    """Return the starts and ends of blocks in order, each with its index and its type or block."""
    return [
        (name.removeprefix("content_block:"), data["block_index"], data.get("block_type") or data["block"])
        for name, data in room.events
        if name.startswith("content_block:")
    ]


@pytest.fixture
def listen(room: Any) -> Callable[[], None]:
    """Note the deltas among the events of the session."""
    return lambda: room.hooks.register(DELTA, room._record, priority=-1000)


async def test_blocks_are_shown_as_they_come_and_the_last_ends_with_the_response(room: Any, listen: Any) -> None:
    listen()
    usage = Usage(input_tokens=1, output_tokens=2, total_tokens=3)
    whole = ChatResponse(content=[ThinkingBlock(thinking="hm", signature="s"), TextBlock(text="Hello")], usage=usage)
    assert await room.run("go", Speech(room, ("thinking", ["hm"]), ("text", ["Hel", "lo"]), response=whole)) == "Hello"
    story = [name for name in room.names() if name.startswith(("content_block", "llm", "provider"))]
    assert story == [
        "provider:request",
        "content_block:start",
        DELTA,
        "content_block:end",
        "content_block:start",
        DELTA,
        DELTA,
        "provider:response",
        "content_block:end",
    ]
    assert shown(room) == [
        ("start", 0, "thinking"),
        ("end", 0, {"type": "thinking", "thinking": "hm"}),
        ("start", 1, "text"),
        ("end", 1, {"type": "text", "text": "Hello"}),
    ]
    last = room.data("content_block:end")[-1]
    assert (last["total_blocks"], last["usage"]["total_tokens"]) == (2, 3)


async def test_tool_calls_are_shown_with_the_response(room: Any) -> None:
    room.tool("read")
    calls = [ToolCall(id=each, name="read", arguments={"n": each}) for each in "12"]
    blocks = [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
    whole = ChatResponse(content=[TextBlock(text="I read."), *blocks], tool_calls=calls)
    await room.run("go", Speech(room, ("text", ["I read."]), ("tool_use", []), ("tool_use", []), response=whole), "ok")
    assert [each[:2] for each in shown(room)][:6] == [
        ("start", 0),
        ("end", 0),
        ("start", 1),
        ("end", 1),
        ("start", 2),
        ("end", 2),
    ]
    assert [data["block"].get("input") for data in room.data("content_block:end")][1:3] == [{"n": "1"}, {"n": "2"}]


async def test_a_provider_without_starts_is_followed_by_its_deltas(room: Any) -> None:
    async def speak() -> ChatResponse:
        await room.hooks.emit(DELTA, {"text": "Hel"})
        await room.hooks.emit(DELTA, {"text": "lo"})
        return ChatResponse(content=[TextBlock(text="Hello")])

    assert await room.run("go", speak) == "Hello"
    assert shown(room) == [("start", 0, "text"), ("end", 0, {"type": "text", "text": "Hello"})]


async def test_what_an_aborted_attempt_said_is_void(room: Any) -> None:
    speech = Speech(room, ("text", ["Yes", None]))

    async def speak() -> ChatResponse:
        await room.hooks.emit(START, {"block_index": 0, "block_type": "text"})
        await room.hooks.emit(DELTA, {"block_index": 0, "text": "No"})
        await room.hooks.emit(ABORTED, {"request_id": "r", "error": {"type": "StreamError", "msg": "cut"}})
        await speech()
        raise AssertionError("it was to be cancelled")

    turn = asyncio.create_task(room.run("go", speak))
    await speech.waits.wait()
    await room.coordinator.request_cancel()
    assert await turn == "Yes"


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_stop_closes_the_stream_and_keeps_what_was_said(room: Any, immediate: bool) -> None:
    speech = Speech(room, ("thinking", ["hm"]), ("text", ["Once upon", " a time", None]))
    turn = asyncio.create_task(room.run("tell", speech))
    await speech.waits.wait()
    await room.coordinator.request_cancel(immediate=immediate)
    assert await turn == "Once upon a time"
    assert speech.was_cancelled
    assert room.history() == [("user", "tell"), ("assistant", [{"type": "text", "text": "Once upon a time"}])]
    assert room.context.messages[-1]["metadata"] == {"finish_reason": "interrupted"}
    assert [each[:2] for each in shown(room)] == [("start", 0), ("end", 0), ("start", 1), ("end", 1)]
    (end,) = room.data("orchestrator:complete")
    assert (end["status"], turn.cancelling()) == ("cancelled", 0)


async def test_a_stop_without_callbacks_is_heard_too(room: Any) -> None:
    speech = Speech(room, ("text", ["Once", None]))
    turn = asyncio.create_task(room.run("tell", speech))
    await speech.waits.wait()
    room.coordinator.cancellation.request_graceful()  # as a parent's time limit asks
    assert await turn == "Once"


async def test_a_stop_before_the_first_word_leaves_no_answer(room: Any) -> None:
    speech = Speech(room, ("thinking", ["hm", None]))
    turn = asyncio.create_task(room.run("tell", speech))
    await speech.waits.wait()
    await room.coordinator.request_cancel()
    assert await turn == "The turn was cancelled."
    assert room.history() == [("user", "tell")]


async def test_a_cut_answer_goes_on_where_it_ends(room: Any) -> None:
    speech = Speech(room, ("text", ["Once upon", None]))
    turn = asyncio.create_task(room.run("tell", speech))
    await speech.waits.wait()
    await room.coordinator.request_cancel()
    await turn
    room.coordinator.cancellation.reset()
    assert await room.run("", " a time") == " a time"
    asked = [(message.role, message.content) for message in room.model.requests[-1].messages]
    assert asked[-1] == ("user", "Your last message was cut. Go on where it ends.")
    assert [role for role, _ in room.history()] == ["user", "assistant", "assistant"]


async def test_a_stop_that_comes_from_within_the_answer_lets_the_turn_end(room: Any) -> None:
    async def respond() -> ChatResponse:
        await room.coordinator.request_cancel(immediate=True)
        return ChatResponse(content=[TextBlock(text="whole")])

    turn = asyncio.create_task(room.run("go", respond))
    assert await turn == "whole"
    assert turn.cancelling() == 0
