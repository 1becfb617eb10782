"""Test that each tool call has an id of its own, and each result that of its call."""

from __future__ import annotations

import sys
from typing import Any

import amplifier_providers.call_ids as call_ids
from amplifier_core.message_models import ChatRequest, ChatResponse, Message, ToolCall, ToolCallBlock


def request(ids: list[str]) -> ChatRequest:
    """Return a request in which each call has its result after it."""
    messages = []
    for number, call_id in enumerate(ids):
        messages.append(Message(role="assistant", content=[ToolCallBlock(id=call_id, name="read", input={})]))
        messages.append(Message(role="tool", tool_call_id=call_id, content=f"{number}"))
    return ChatRequest(messages=messages)


def test_calls_with_one_id_are_numbered_past_the_ids_of_others_and_their_results_follow() -> None:
    messages = call_ids.with_single_ids(request(["c", "c", "d", "c_3", "c", "d", "c"])).messages
    ids = [block.id for message in messages[::2] for block in message.content if isinstance(block, ToolCallBlock)]
    assert ids == ["c", "c_2", "d", "c_3", "c_4", "d_2", "c_5"]
    assert [message.tool_call_id for message in messages[1::2]] == ids


def test_an_id_of_another_service_is_written_as_this_one_takes_it_and_its_result_follows() -> None:
    given = ["call_1", "functions.look:0", "functions_look_0", "x" * 3000, "x" * 3001, "aé\n"]
    messages = call_ids.with_single_ids(request(given), lambda each: call_ids.plain_id(each, 40)).messages
    ids = [block.id for message in messages[::2] for block in message.content if isinstance(block, ToolCallBlock)]
    assert ids[:3] == ["call_1", "functions_look_0", "functions_look_0_2"]
    assert (len(set(ids)), {len(each) for each in ids[3:5]}) == (6, {40})
    assert all(each.isascii() and each.replace("_", "").isalnum() for each in ids)
    assert [message.tool_call_id for message in messages[1::2]] == ids


def test_calls_that_an_answer_tells_more_often_in_one_place_than_in_the_other_end_nothing() -> None:
    block = ToolCallBlock(id="c", name="read", input={})
    calls = [{"id": "c", "name": "read", "arguments": {}}] * 3
    messages = [Message(role="assistant", content=[block, block], tool_calls=calls)]  # type: ignore[call-arg]
    (message,) = call_ids.with_single_ids(ChatRequest(messages=messages), str).messages
    assert [each.id for each in message.content if isinstance(each, ToolCallBlock)] == ["c", "c_2"]
    assert [each["id"] for each in getattr(message, "tool_calls")] == ["c", "c_2", "c_2"]  # noqa: B009
    response = ChatResponse(content=[block, block], tool_calls=[ToolCall(id="c", name="read", arguments={})])
    renamed = call_ids.with_own_ids(response, ChatRequest(messages=messages))
    assert [each.id for each in renamed.tool_calls or ()] == ["c_2"]


def lines_run(calls: int) -> int:
    """Return how many lines of the module run for a history of calls with one id."""
    asked, lines, before = request(["c"] * calls), 0, sys.gettrace()

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace if frame.f_code.co_filename == call_ids.__file__ else None

    sys.settrace(trace)
    try:
        call_ids.with_single_ids(asked, str)
    finally:
        sys.settrace(before)
    return lines


def test_the_work_for_calls_with_one_id_grows_with_their_number_only() -> None:
    assert lines_run(800) < 5 * lines_run(200)
