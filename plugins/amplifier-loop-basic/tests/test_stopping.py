"""Test the end of a turn if the session stops, or its task is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_core.models import ToolResult


def status(room: Any) -> str:
    (data,) = room.data("orchestrator:complete")
    return str(data["status"])


class Gate:
    """A tool, or a model call, that says when it runs and ends when it may."""

    def __init__(self, result: Any = "") -> None:
        self.entered, self.may_end, self.was_cancelled = asyncio.Event(), asyncio.Event(), False
        self.result = result

    async def __call__(self, *args: Any) -> Any:
        self.entered.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return self.result


async def test_a_graceful_stop_lets_the_running_tool_finish_and_asks_no_more(room: Any) -> None:
    gate = Gate(ToolResult(output="whole"))
    room.tool("slow", gate)
    turn = asyncio.create_task(room.run("go", room.calls("slow")))
    await gate.entered.wait()
    assert room.coordinator.cancellation.running_tool_names == ["slow"]
    await room.coordinator.request_cancel()
    gate.may_end.set()
    assert await turn == "The turn was cancelled."
    assert room.results() == [("1", "whole")]
    assert (status(room), len(room.model.requests)) == ("cancelled", 1)
    assert room.coordinator.cancellation.running_tools == set()


async def test_a_stop_between_response_and_tools_begins_none_and_answers_each(room: Any) -> None:
    tool = room.tool("read")

    async def respond() -> Any:
        await room.coordinator.request_cancel()
        return room.calls("read", "read")

    await room.run("go", respond)
    assert tool.inputs == []
    assert room.results() == [(number, "Error: cancelled before the tool call began.") for number in ("1", "2")]
    assert status(room) == "cancelled"


@pytest.mark.parametrize("count", [1, 3])
async def test_an_immediate_stop_cancels_the_running_tools_and_says_so(room: Any, count: int) -> None:
    gates = [Gate() for _ in range(count)]
    for number, gate in enumerate(gates):
        room.tool(f"slow{number}", gate)
    turn = asyncio.create_task(room.run("go", room.calls(*room.tools)))
    for gate in gates:
        await gate.entered.wait()
    await room.coordinator.request_cancel()
    await room.coordinator.request_cancel(immediate=True)
    assert await turn == "The turn was cancelled."
    assert all(gate.was_cancelled for gate in gates)
    assert [text.startswith("Error: cancelled while") for _, text in room.results()] == [True] * count
    assert status(room) == "cancelled"
    assert turn.cancelling() == 0


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("way", ["stop", "cancel"])
async def test_a_call_that_hooks_are_asked_about_has_not_begun(room: Any, way: str, count: int) -> None:
    question, tool = Gate(), room.tool("pay")
    room.hooks.register("tool:pre", question)
    turn = asyncio.create_task(room.run("go", room.calls(*["pay"] * count)))
    await question.entered.wait()
    if way == "stop":
        await room.coordinator.request_cancel(immediate=True)
    else:
        turn.cancel()
    await asyncio.wait([turn])
    assert tool.inputs == []
    assert [text for _, text in room.results()] == ["Error: cancelled before the tool call began."] * count


async def test_an_immediate_stop_keeps_the_result_of_a_tool_that_had_finished(room: Any) -> None:
    gate = Gate()
    room.tool("fast")
    room.tool("slow", gate)
    turn = asyncio.create_task(room.run("go", room.calls("fast", "slow")))
    await gate.entered.wait()
    await room.coordinator.request_cancel(immediate=True)
    await turn
    assert [text[:16] for _, text in room.results()] == ["fast", "Error: cancelled"]


async def test_a_tool_that_insists_on_finishing_keeps_its_result(room: Any) -> None:
    gate = Gate()

    async def insist(input: dict[str, Any]) -> ToolResult:
        try:
            await gate()
        except asyncio.CancelledError:
            return ToolResult(output="saved")
        raise AssertionError("it was to be cancelled")

    room.tool("insist", insist)
    turn = asyncio.create_task(room.run("go", room.calls("insist")))
    await gate.entered.wait()
    await room.coordinator.request_cancel(immediate=True)
    await turn
    assert room.results() == [("1", "saved")]
    assert (status(room), turn.cancelling()) == ("cancelled", 0)


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_stop_ends_the_wait_for_the_model(room: Any, immediate: bool) -> None:
    gate = Gate()
    turn = asyncio.create_task(room.run("go", gate))
    await gate.entered.wait()
    await room.coordinator.request_cancel(immediate=immediate)
    assert await turn == "The turn was cancelled."
    assert gate.was_cancelled
    assert status(room) == "cancelled"


async def test_an_immediate_stop_just_before_the_model_is_asked_keeps_it_from_being_asked(room: Any) -> None:
    async def stop(event: str, data: dict[str, Any]) -> None:
        await room.coordinator.request_cancel(immediate=True)

    room.hooks.register("provider:request", stop)
    await room.run("go", "never")
    assert (room.model.requests, status(room)) == ([], "cancelled")


async def test_a_cancelled_task_is_cancelled_also_when_the_session_stops_at_the_same_time(room: Any) -> None:
    gate = Gate()
    room.tool("slow", gate)
    turn = asyncio.create_task(room.run("go", room.calls("slow")))
    await gate.entered.wait()
    await room.coordinator.request_cancel(immediate=True)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert len(room.results()) == 1


async def test_the_turn_after_a_stop_runs(room: Any) -> None:
    await room.coordinator.request_cancel(immediate=True)
    await room.run("go")
    room.coordinator.cancellation.reset()
    assert await room.run("", "done") == "done"


@pytest.mark.parametrize("count", [1, 3])
async def test_a_cancelled_task_leaves_no_call_without_a_result(room: Any, count: int) -> None:
    gates = [Gate() for _ in range(count)]
    for number, gate in enumerate(gates):
        room.tool(f"slow{number}", gate)
    turn = asyncio.create_task(room.run("go", room.calls(*room.tools)))
    for gate in gates:
        await gate.entered.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert all(gate.was_cancelled for gate in gates)
    assert len(room.results()) == count
    assert status(room) == "cancelled"
    assert room.names()[-2:] == ["orchestrator:complete", "execution:end"]


async def test_a_turn_within_a_time_limit_is_stopped_by_it(room: Any) -> None:
    gate = Gate()
    room.tool("slow", gate)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await room.run("go", room.calls("slow"))
    assert status(room) == "cancelled"
    assert len(room.results()) == 1


async def test_a_token_that_knows_only_awaited_callbacks_is_heard_by_them(room: Any) -> None:
    class Older:
        """The token of another kernel."""

        is_cancelled = is_immediate = False

        def on_cancel(self, callback: Any) -> None:
            self.callback = callback

    room.coordinator.cancellation = Older()
    gate = Gate()
    turn = asyncio.create_task(room.run("go", gate))
    await gate.entered.wait()
    room.coordinator.cancellation.is_cancelled = True
    await room.coordinator.cancellation.callback()
    assert await turn == "The turn was cancelled."


async def test_a_session_is_listened_to_once_for_all_its_turns(room: Any) -> None:
    listeners: list[Any] = []
    room.coordinator.cancellation.on_change = listeners.append
    for _ in range(3):
        await room.run("go", "done")
    assert len(listeners) == 1
