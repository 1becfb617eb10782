"""Test messages of the user to a running turn."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest

import amplifier_loop_streaming
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.message_models import ChatResponse, TextBlock
from amplifier_core.models import HookResult
from amplifier_core.transcript import settled_length
from amplifier_loop_streaming import SteeringFull
from amplifier_loop_streaming.steering import LIMIT

STEERED = "orchestrator:steering_injected"


def asked(room: Any) -> list[list[tuple[str, Any]]]:
    """Return role and content of the messages of each request."""
    return [[(each.role, each.content) for each in request.messages] for request in room.model.requests]


def steering_tool(room: Any, *texts: str) -> None:
    """Mount a tool that steers the session while it runs."""

    async def steer(input: dict[str, Any]) -> str:
        assert await room.steer(*texts) == [True] * len(texts)
        return "ran"

    room.tool("steer", steer)


def statuses(room: Any) -> list[str]:
    return [data["status"] for data in room.data("orchestrator:complete")]


async def test_messages_during_a_tool_call_are_part_of_the_next_step_in_their_order(room: Any) -> None:
    steering_tool(room, "shorter", "in French")
    room.hooks.register(STEERED, room._record)
    assert await room.run("go", room.calls("steer", "steer"), "done") == "done"
    said = [(role, content) for role, content in asked(room)[1] if role in ("user", "tool")]
    steers = [("user", "shorter"), ("user", "in French")] * 2
    assert said == [("user", "go"), ("tool", "ran"), ("tool", "ran"), *steers]
    told = [(each["content"], each["iteration"], each["queued_remaining"]) for each in room.data(STEERED)]
    assert told == [("shorter", 2, 3), ("in French", 2, 2), ("shorter", 2, 1), ("in French", 2, 0)]
    assert next(each.get("metadata") for each in room.context.messages if each["content"] == "shorter") == {
        "source": "steering"
    }


async def test_a_message_during_the_last_answer_leads_to_another_request(room: Any) -> None:
    async def answer() -> str:
        assert await room.steer("wait") == [True]
        return "first"

    assert await room.run("go", answer, "second") == "second"
    assert [role for role, _ in room.history()] == ["user", "assistant", "user", "assistant"]
    assert (statuses(room), room.data("orchestrator:complete")[0]["turn_count"]) == (["success"], 2)


async def test_a_message_while_no_turn_runs_waits_for_the_next_one(room: Any) -> None:
    assert await room.steer("and briefly") == [False]
    assert await room.run("go", "done") == "done"
    assert asked(room) == [[("user", "go"), ("user", "and briefly")]]


async def test_a_message_after_the_last_answer_waits_for_the_next_turn(room: Any) -> None:
    taken: list[bool] = []

    async def steer(event: str, data: dict[str, Any]) -> None:
        if not taken:
            taken.extend(await room.steer("late"))

    room.hooks.register("orchestrator:complete", steer)
    await room.run("go", "done")
    assert (taken, len(asked(room))) == ([False], 1)
    await room.run("next", "done")
    assert asked(room)[-1][-2:] == [("user", "next"), ("user", "late")]


async def test_a_stopped_turn_keeps_the_messages_that_wait(room: Any, speech: Any) -> None:
    talk = speech(room, ("text", ["Once upon", None]))
    turn = asyncio.create_task(room.run("tell", talk))
    await talk.waits.wait()
    assert await room.steer("shorter") == [True]
    await room.coordinator.request_cancel()
    assert await turn == "Once upon"
    assert [content for role, content in room.history() if role == "user"] == ["tell", "shorter"]
    assert statuses(room) == ["cancelled"]


async def test_a_failed_turn_keeps_the_messages_that_wait(room: Any) -> None:
    async def fail() -> Exception:
        await room.steer("shorter")
        return ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await room.run("go", fail)
    assert room.history() == [("user", "go"), ("user", "shorter")]
    assert await room.run("", "done") == "done"


async def test_an_answer_at_the_limit_is_the_answer_and_keeps_the_message(room: Any) -> None:
    async def answer() -> str:
        await room.steer("wait")
        return "whole"

    assert await room.run("go", answer, config={"max_iterations": 1}) == "whole"
    assert (statuses(room), room.history()[-1]) == (["success"], ("user", "wait"))


async def test_a_turn_at_its_limit_keeps_the_message(room: Any) -> None:
    steering_tool(room, "shorter")
    text = await room.run("go", room.calls("steer"), config={"max_iterations": 1})
    assert text.startswith("Stopped after 1 model calls")
    assert (statuses(room), room.history()[-1]) == (["incomplete"], ("user", "shorter"))
    assert await room.run("", "done") == "done"


async def test_hooks_on_prompts_see_messages_and_may_change_or_deny_them(room: Any) -> None:
    steering_tool(room, "secret", "wrong", "good")

    async def check(event: str, data: dict[str, Any]) -> HookResult:
        if data.get("is_steering") and data["prompt"] == "secret":
            return HookResult(action="deny", reason="no secrets")
        return HookResult(action="modify", data={**data, "prompt": data["prompt"].replace("wrong", "right")})

    room.hooks.register("prompt:submit", check)
    await room.run("go", room.calls("steer"), "done")
    assert [content for role, content in asked(room)[1] if role == "user"] == ["go", "right", "good"]


@pytest.mark.parametrize("text", ["", "  \n", None, 5])
async def test_a_message_without_text_is_refused(room: Any, text: Any) -> None:
    with pytest.raises(ValueError, match=r"session\.steer: the message must be a text"):
        await room.steer(text)
    await room.run("go", "done")
    assert len(asked(room)[0]) == 1


async def test_too_many_messages_are_refused_and_the_earlier_ones_stay(room: Any) -> None:
    await room.steer(*map(str, range(LIMIT)))
    with pytest.raises(SteeringFull, match="100 messages wait already"):
        await room.steer("one more")
    await room.run("go", "done")
    assert [content for _, content in asked(room)[0]] == ["go", *map(str, range(LIMIT))]


async def test_a_kill_after_any_message_leaves_a_history_that_can_go_on(room: Any) -> None:
    steering_tool(room, "shorter")
    script = [room.calls("steer", "steer"), room.calls("steer"), "done"]
    await room.run("go", *script)
    whole = room.context.messages
    assert [each["role"] for each in whole].count("user") == 4
    for length in range(1, len(whole)):
        other = type(room)()
        steering_tool(other)
        other.context.messages = [*whole[:length]]
        await other.run("", "done")
        history = other.context.messages
        assert settled_length(history) == len(history)
        for at, message in enumerate(history):
            count = len(message.get("tool_calls") or ())
            assert [each["role"] for each in history[at + 1 : at + 1 + count]] == ["tool"] * count


async def test_a_cancelled_task_keeps_the_messages_after_the_results(room: Any) -> None:
    began = asyncio.Event()

    async def hang(input: dict[str, Any]) -> None:
        await room.steer("shorter")
        began.set()
        await asyncio.Event().wait()

    room.tool("hang", hang)
    turn = asyncio.create_task(room.run("go", room.calls("hang")))
    await began.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert [role for role, _ in room.history()] == ["user", "assistant", "tool", "user"]


async def test_text_comes_while_the_model_speaks_and_steering_does_not_cut_it(room: Any, speech: Any) -> None:
    seen: list[str] = []

    async def listen(event: str, data: dict[str, Any]) -> None:
        seen.append(data["text"])
        if data["text"] == "Hel":
            await room.steer("louder")

    room.hooks.register("llm:stream_block_delta", listen)
    first = ChatResponse(content=[TextBlock(text="Hello")])
    second = ChatResponse(content=[TextBlock(text="HELLO")])
    talks = [
        speech(room, ("text", ["Hel", "lo"]), response=first),
        speech(room, ("text", ["HEL", "LO"]), response=second),
    ]
    assert await room.run("go", *talks) == "HELLO"
    assert seen == ["Hel", "lo", "HEL", "LO"]
    assert [data["block"]["text"] for data in room.data("content_block:end")] == ["Hello", "HELLO"]


async def test_it_announces_its_event_and_is_the_loop_of_the_entry_point() -> None:
    coordinator = ModuleCoordinator()
    (entry,) = entry_points(group="amplifier.modules", name="loop-streaming")
    await entry.load()(coordinator, {})
    assert isinstance(coordinator.get("orchestrator"), amplifier_loop_streaming.StreamingOrchestrator)
    assert await coordinator.collect_contributions("observability.events") == [[STEERED]]


async def test_a_wrong_configuration_names_this_module() -> None:
    with pytest.raises(ValueError, match="loop-streaming: max_iterations: must be"):
        await amplifier_loop_streaming.mount(ModuleCoordinator(), {"max_iterations": 0})
    with pytest.raises(ValueError, match="loop-streaming: max_iteration: unknown key"):
        amplifier_loop_streaming.check_config({"max_iteration": 5})
    (warning,) = amplifier_loop_streaming.check_config({"extended_thinking": True})
    assert warning.startswith("extended_thinking: unknown key without effect; known are ")
    with pytest.raises(LookupError, match="loop-streaming: default_provider 'x' is not mounted"):
        await amplifier_loop_streaming.StreamingOrchestrator({"default_provider": "x"}).execute(
            "go", None, {"a": None}, {}, None
        )
    assert set(amplifier_loop_streaming.config_schema()["properties"]) == {
        "max_iterations",
        "max_parallel_tools",
        "max_result_chars",
        "default_provider",
    }


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, amplifier_loop_streaming; print({'pydantic', 'asyncio'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"
