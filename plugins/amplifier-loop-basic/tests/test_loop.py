"""Test a turn of the loop: events, messages, tools, hooks, providers and resumption."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from importlib.metadata import entry_points
from typing import Any
from unittest.mock import MagicMock

import pytest

import amplifier_loop_basic
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.llm_errors import ContextLengthError, InvalidRequestError, RateLimitError
from amplifier_core.message_models import ChatResponse, TextBlock, ThinkingBlock, Usage
from amplifier_core.models import HookResult, ToolResult
from amplifier_core.raised import find_origin
from amplifier_loop_basic import answers
from amplifier_loop_basic.turn import Turn

# one turn


async def test_a_turn_with_a_tool_call_tells_its_story_in_order(room: Any) -> None:
    room.tool("read")
    assert await room.run("go", room.calls("read"), "done") == "done"
    assert room.names() == [
        "prompt:submit",
        "execution:start",
        "provider:request",
        "provider:response",
        "content_block:start",
        "content_block:end",
        "tool:pre",
        "tool:post",
        "provider:request",
        "provider:response",
        "content_block:start",
        "content_block:end",
        "orchestrator:complete",
        "execution:end",
        "prompt:complete",
    ]


async def test_events_carry_what_their_readers_need(room: Any) -> None:
    room.tool("read")
    await room.run("go", room.calls("read"), "done")
    by_kernel = {"timestamp"}
    first = {name: {key: data[key] for key in data.keys() - by_kernel} for name, data in reversed(room.events)}
    group = first["tool:pre"]["parallel_group_id"]
    key = first["tool:pre"]["idempotency_key"]
    call = {"tool_name": "read", "tool_input": {"n": 1}, "tool_call_id": "1", "parallel_group_id": group}
    call["idempotency_key"] = key
    assert len(key) == 32
    assert first["prompt:submit"] == first["execution:start"] == {"prompt": "go"}
    assert first["provider:request"] == {"provider": "model", "iteration": 1}
    assert first["tool:pre"] == call
    assert first["tool:post"] == {**call, "result": {"success": True, "output": "read", "error": None}}
    assert first["orchestrator:complete"] == {"orchestrator": room.module, "turn_count": 2, "status": "success"}
    assert first["prompt:complete"] == {"response_preview": "done", "length": 4}


async def test_a_prompt_that_a_hook_makes_something_else_than_text_is_not_stored(room: Any) -> None:
    room.on("prompt:submit", action="modify", data={"prompt": None})
    with pytest.raises(TypeError, match="a hook changed the prompt to NoneType: it must be text"):
        await room.run("go", "done")
    assert room.history() == []


@pytest.mark.parametrize("answer", [None, {"content": "hello"}])
async def test_an_answer_that_is_no_response_is_told_with_its_provider(room: Any, answer: Any) -> None:
    with pytest.raises(TypeError, match=r"provider 'model' must answer with a ChatResponse, not with (NoneType|dict)"):
        await room.run("go", answer)


async def test_a_context_without_messages_is_told_with_its_place(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(**kwargs: Any) -> None:
        """Return nothing."""

    monkeypatch.setattr(room.context, "get_messages_for_request", forget)
    with pytest.raises(TypeError, match="the context manager must answer with a list of messages") as raised:
        await room.run("go", "done")
    assert find_origin(raised.value) == ("", f"{__file__}:{forget.__code__.co_firstlineno}")


async def test_metadata_that_no_store_can_take_is_left_out_with_a_warning(
    room: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_told", set())
    metadata = {"id": "r1", "scores": {"x": float("nan")}, "raw": object()}
    answer = ChatResponse(content=[TextBlock(text="done")], metadata=metadata)
    assert await room.run("go", answer) == "done"
    assert room.context.messages[-1]["metadata"] == {"id": "r1"}
    assert caplog.messages == ["provider 'model' answers with metadata that is not JSON; left out: 'scores', 'raw'"]


class FrozenResponse(ChatResponse, frozen=True):
    """An answer that cannot be changed."""


@dataclass(frozen=True)
class FrozenAnswer:
    content: list[Any]
    metadata: dict[str, Any]
    tool_calls: None = None
    usage: None = None
    finish_reason: str = "stop"


@pytest.mark.parametrize("kind", [FrozenResponse, FrozenAnswer])
@pytest.mark.parametrize("metadata", [{"id": "r1"}, {"id": "r1", "raw": {1, 2}}])
async def test_an_answer_that_cannot_be_changed_stays_as_it_is(
    room: Any, caplog: pytest.LogCaptureFixture, kind: Any, metadata: dict[str, Any]
) -> None:
    assert await room.run("go", kind(content=[TextBlock(text="done")], metadata=metadata)) == "done"
    assert room.context.messages[-1]["metadata"] == metadata
    assert caplog.messages == []


async def test_metadata_that_are_none_are_left_out_as_a_whole(
    room: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_told", set())
    answer = ChatResponse(content=[TextBlock(text="done")])
    vars(answer)["metadata"] = MagicMock()
    assert await room.run("go", answer) == "done"
    assert "metadata" not in room.context.messages[-1]
    assert caplog.messages == ["provider 'model' answers with metadata that is not JSON; left out: all of it"]


@pytest.mark.parametrize("kind", ["coroutine", "async_generator", "generator"])
async def test_a_tool_that_returns_work_still_to_be_done_has_failed(room: Any, kind: str) -> None:
    async def later() -> str:
        return "later"

    async def stream() -> Any:
        yield "later"

    async def work(input: dict[str, Any]) -> Any:
        return {"coroutine": later, "async_generator": stream, "generator": lambda: (each for each in "later")}[kind]()

    room.tool("work", work)
    await room.run("go", room.calls("work"), "done")
    [(_, content)] = room.results()
    assert content == f"Error: TypeError: its execute returns {kind}, and no result"


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request"])
async def test_a_denial_without_a_reason_says_so(room: Any, event: str) -> None:
    room.on(event, action="deny")
    assert await room.run("go") == "Denied by hook: no reason given"


async def test_only_so_many_calls_of_one_response_run_at_the_same_time_and_the_others_wait(room: Any) -> None:
    running, most, order = 0, 0, []

    async def work(input: dict[str, Any]) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        order.append(input["n"])
        return str(input["n"])

    room.tool("work", work)
    await room.run("go", room.calls(*["work"] * 10), "done", config={"max_parallel_tools": 3})
    assert (most, order) == (3, [*range(1, 11)])
    assert room.results() == [(str(n), str(n)) for n in range(1, 11)]
    most = 0
    await room.run("go", room.calls(*["work"] * 40), "done", config={})
    assert most == 16


async def test_a_call_that_waits_when_its_turn_is_cancelled_never_began(room: Any) -> None:
    began = asyncio.Event()

    async def hang(input: dict[str, Any]) -> None:
        began.set()
        await asyncio.Event().wait()

    room.tool("hang", hang)
    turn = asyncio.create_task(room.run("go", room.calls("hang", "hang"), config={"max_parallel_tools": 1}))
    await began.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert [text for _, text in room.results()] == [
        "Error: cancelled while the tool call ran. It may have had an effect.",
        "Error: cancelled before the tool call began.",
    ]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_long_result_is_cut_for_the_model_and_says_how_much_is_missing(room: Any, fails: bool) -> None:
    async def pour(input: dict[str, Any]) -> str:
        if fails:
            raise ValueError("x" * 500)
        return "x" * 500

    room.tool("pour", pour)
    await room.run("go", room.calls("pour"), "done", config={"max_result_chars": 100})
    [(_, text)] = room.results()
    whole = f"Error: ValueError: {'x' * 500}" if fails else "x" * 500
    missing = len(whole) - 100
    note = f"[The result is cut here: {missing} of its {len(whole)} characters are missing.]"
    assert text == f"{whole[:100]}\n{note}"
    assert amplifier_loop_basic.config_schema()["properties"]["max_result_chars"]["default"] == 200_000


async def test_messages_have_the_published_shape(room: Any) -> None:
    room.tool("read")
    await room.run("go", room.calls("read"), "done")
    assert room.context.messages == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "1", "name": "read", "input": {"n": 1}}],
            "tool_calls": [{"id": "1", "tool": "read", "arguments": {"n": 1}}],
        },
        {"role": "tool", "tool_call_id": "1", "name": "read", "content": "read"},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]


async def test_the_model_is_shown_the_history_and_the_tools(room: Any) -> None:
    room.tool("read")
    await room.run("go", room.calls("read"), "done")
    first, second = room.model.requests
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert [(spec.name, spec.description) for spec in first.tools] == [("read", "read it")]
    assert first.tools[0].parameters["properties"] == {"value": {"type": "string"}}


async def test_without_tools_none_are_offered(room: Any) -> None:
    await room.run("go", "done")
    assert room.model.requests[0].tools is None


async def test_blocks_usage_and_metadata_of_a_response_are_shown_and_kept(room: Any) -> None:
    response = ChatResponse(
        content=[ThinkingBlock(thinking="hm", signature="x"), TextBlock(text="a"), TextBlock(text="b")],
        usage=Usage(input_tokens=1, output_tokens=2, total_tokens=3),
        metadata={"continuation": "c"},
    )
    assert await room.run("go", response) == "a\n\nb"
    assert [data["block_type"] for data in room.data("content_block:start")] == ["thinking", "text", "text"]
    ends = room.data("content_block:end")
    assert ends[0]["block"] == {"type": "thinking", "thinking": "hm", "signature": "x"}
    assert [end.get("usage") for end in ends] == [
        None,
        None,
        {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    ]
    assert room.context.messages[-1]["metadata"] == {"continuation": "c"}


@pytest.mark.parametrize(
    "usage", [{}, {"cost_usd": Decimal("0.10"), "cache_read_tokens": 0}, {"cost_usd": "1", "own": 2}]
)
async def test_the_usage_of_a_response_is_told_as_it_is_written(room: Any, usage: dict[str, Any]) -> None:
    told = Usage(input_tokens=1, output_tokens=2, total_tokens=3, **usage)
    await room.run("go", ChatResponse(content=[TextBlock(text="a")], usage=told))
    assert [data["usage"] for data in room.data("provider:response")] == [told.model_dump(exclude_none=True)]


async def test_the_loop_runs_without_a_coordinator(room: Any) -> None:
    room.tool("read")
    assert await room.run("go", room.calls("read"), "done", coordinator=None) == "done"
    assert room.results() == [("1", "read")]


# tool calls


async def test_calls_of_one_response_run_side_by_side_and_are_answered_in_order(room: Any) -> None:
    second_ran = asyncio.Event()

    async def wait(input: dict[str, Any]) -> ToolResult:
        await second_ran.wait()
        return ToolResult(output="first")

    async def release(input: dict[str, Any]) -> ToolResult:
        second_ran.set()
        return ToolResult(output="second")

    room.tool("wait", wait)
    room.tool("release", release)
    await room.run("go", room.calls("wait", "release"), "done")
    assert room.results() == [("1", "first"), ("2", "second")]
    assert len({data["parallel_group_id"] for data in room.data("tool:pre")}) == 1


async def test_a_tool_that_raises_is_answered_with_its_error_and_the_others_still_run(room: Any) -> None:
    async def fail(input: dict[str, Any]) -> ToolResult:
        raise OSError("disk full")

    room.tool("fail", fail)
    room.tool("read")
    assert await room.run("go", room.calls("fail", "read"), "done") == "done"
    assert room.results() == [("1", "Error: OSError: disk full"), ("2", "read")]
    assert room.data("tool:error")[0]["error"] == {"type": "OSError", "msg": "Error: OSError: disk full"}


@pytest.mark.parametrize("hears", [False, True])
@pytest.mark.parametrize("kind", ["a circle", "too deep"])
async def test_a_result_that_cannot_be_written_is_the_error_of_its_tool(room: Any, kind: str, hears: bool) -> None:
    circle: dict[str, Any] = {}
    circle["circle"] = circle
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    async def answer(input: dict[str, Any]) -> ToolResult:
        return ToolResult(output=circle if kind == "a circle" else deep)

    if hears:
        room.on("tool:post", action="continue")
    room.tool("odd", answer)
    room.tool("read")
    assert await room.run("go", room.calls("odd", "read"), "done") == "done"
    (_, said), (_, read) = room.results()
    assert said.startswith("Error: odd has run, and its result cannot be written as JSON: ")
    assert read == "read"


class Mute:
    """An object that cannot be shown."""

    def __str__(self) -> str:
        raise LookupError("no words, but sk-ant-api03-abcdefghijklmnop")

    __repr__ = __str__


class MuteError(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize("hears", [False, True])
async def test_a_result_that_cannot_be_shown_is_the_error_of_its_tool(room: Any, hears: bool) -> None:
    async def answer(input: dict[str, Any]) -> Any:
        return Mute()

    if hears:
        room.on("tool:post", action="continue")
    room.tool("odd", answer)
    assert await room.run("go", room.calls("odd"), "done") == "done"
    assert room.results() == [
        ("1", "Error: odd has run, and its result cannot be written as JSON: no words, but [REDACTED]")
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MuteError(), "Error: MuteError"),
        (ExceptionGroup("two", [ValueError("in group")]), "Error: ExceptionGroup: two: ValueError: in group"),
        (
            ExceptionGroup("two", [OSError(), ExceptionGroup("more", [MuteError(), KeyError("deep")])]),
            "Error: ExceptionGroup: two: OSError; ExceptionGroup: more: MuteError; KeyError: 'deep'",
        ),
        (BaseExceptionGroup("end", [KeyboardInterrupt()]), "Error: BaseExceptionGroup: end: KeyboardInterrupt"),
        (ExceptionGroup("sk-ant-api03-abcdefghijklmnop", [OSError()]), "Error: ExceptionGroup: [REDACTED]: OSError"),
        (
            ExceptionGroup("a", [OSError("sk-ant-api03-abcdefghijklmnop")]),
            "Error: ExceptionGroup: a: OSError: [REDACTED]",
        ),
    ],
)
async def test_the_model_reads_what_a_tool_raised(room: Any, error: BaseException, text: str) -> None:
    async def fail(input: dict[str, Any]) -> Any:
        raise error

    room.tool("odd", fail)
    assert await room.run("go", room.calls("odd"), "done") == "done"
    assert room.results() == [("1", text)]


async def test_an_unknown_tool_is_answered_with_the_tools_there_are(room: Any) -> None:
    room.tool("write")
    room.tool("read")
    await room.run("go", room.calls("delete"), "done")
    assert room.results() == [("1", "Error: unknown tool 'delete'. Available: read, write")]
    assert room.names("tool:") == ["tool:pre", "tool:error"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(3), "Error: SystemExit: 3"),
        (KeyboardInterrupt(), "Error: KeyboardInterrupt"),
        (GeneratorExit(), "Error: GeneratorExit"),
        (BaseException("out of here"), "Error: BaseException: out of here"),
    ],
)
async def test_a_tool_that_raises_what_ends_programs_has_failed(room: Any, error: BaseException, text: str) -> None:
    async def leave(input: dict[str, Any]) -> ToolResult:
        raise error

    room.tool("leave", leave)
    assert await room.run("go", room.calls("leave"), room.calls("leave", "leave"), "done") == "done"
    assert [text for _, text in room.results()] == [text] * 3
    assert room.data("tool:error")[0]["error"] == {"type": type(error).__name__, "msg": text}


async def test_a_signal_that_ends_the_program_ends_the_turn_while_a_tool_computes(room: Any) -> None:
    async def compute(input: dict[str, Any]) -> ToolResult:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError

    def leave(number: int, frame: object) -> None:
        raise SystemExit(3)

    room.tool("compute", compute)
    before = signal.getsignal(signal.SIGTERM)
    try:
        for handler, error in ((signal.default_int_handler, KeyboardInterrupt), (leave, SystemExit)):
            signal.signal(signal.SIGTERM, handler)
            with pytest.raises(error):
                await room.run("go", room.calls("compute"), "done")
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="the system has no SIGALRM")
async def test_a_tool_that_bounds_its_call_by_an_alarm_has_failed(room: Any) -> None:
    class TimedOut(BaseException):
        """Of no class of `Exception`: what the call catches lets it pass."""

    def ring(number: int, frame: object) -> None:
        raise TimedOut("no answer")

    async def call(input: dict[str, Any]) -> ToolResult:
        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.raise_signal(signal.SIGALRM)
            raise AssertionError
        finally:
            signal.signal(signal.SIGALRM, before)

    room.tool("call", call)
    assert await room.run("go", room.calls("call"), "done") == "done"
    assert room.results() == [("1", "Error: TimedOut: no answer")]


async def test_a_tool_that_cancels_itself_does_not_cancel_the_turn(room: Any) -> None:
    async def give_up(input: dict[str, Any]) -> ToolResult:
        raise asyncio.CancelledError

    room.tool("give_up", give_up)
    assert await room.run("go", room.calls("give_up"), room.calls("give_up", "give_up"), "done") == "done"
    assert [text for _, text in room.results()] == ["Error: the tool cancelled itself."] * 3


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (ToolResult(output={"a": 1}), '{"a": 1}'),
        (ToolResult(success=False, error={"message": "no such file"}), "no such file"),
        (ToolResult(success=False), "Error: the tool failed and did not say why"),
        ({"plain": "dict"}, '{"plain": "dict"}'),
        ("plain text", "plain text"),
        (None, "Success"),
        (
            {"day": date(2026, 1, 31), 1: {"a"}, (1, 2): object},
            '{"day": "2026-01-31", "1": ["a"], "1,2": "<class \'object\'>"}',
        ),
    ],
)
async def test_whatever_a_tool_returns_becomes_text(room: Any, returned: Any, text: str) -> None:
    async def give(input: dict[str, Any]) -> Any:
        return returned

    room.tool("give", give)
    await room.run("go", room.calls("give"), "done")
    assert room.results() == [("1", text)]


# hooks


async def test_a_denied_call_is_not_run_and_its_result_says_so(room: Any) -> None:
    tool = room.tool("read")
    room.on("tool:pre", action="deny", reason="not today")
    await room.run("go", room.calls("read"), "done")
    assert tool.inputs == []
    assert room.results() == [("1", "Denied by hook: not today")]
    assert room.names("tool:") == ["tool:pre", "tool:error"]


async def test_a_call_that_needs_an_approval_nobody_can_give_is_denied(room: Any) -> None:
    tool = room.tool("read")
    room.on("tool:pre", action="ask_user", approval_prompt="Read?")
    await room.run("go", room.calls("read"), "done")
    await room.run("go", room.calls("read"), "done", coordinator=None)
    assert tool.inputs == []
    assert all(text.startswith("Denied by hook: ") for _, text in room.results())


async def test_a_hook_changes_the_input_of_a_call_and_its_result(room: Any) -> None:
    async def censor(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={**data, "result": {"output": "censored"}})

    async def correct(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={**data, "tool_input": {"n": 2}})

    tool = room.tool("read")
    room.hooks.register("tool:pre", correct)
    room.hooks.register("tool:post", censor)
    await room.run("go", room.calls("read"), "done")
    assert tool.inputs == [{"n": 2}]
    assert room.data("tool:post")[0]["tool_input"] == {"n": 2}
    assert room.results() == [("1", "censored")]


async def test_nothing_that_a_hook_injects_stands_between_a_call_and_its_result(room: Any) -> None:
    room.tool("read")
    room.on("tool:pre", action="inject_context", context_injection="before")
    room.on("tool:post", action="inject_context", context_injection="after")
    await room.run("go", room.calls("read"), "done")
    assert [content for _, content in room.history()][2:5] == ["read", "before", "after"]
    assert [message.content for message in room.model.requests[1].messages][2:] == ["read", "before", "after"]


async def test_an_ephemeral_injection_is_in_one_request_and_never_in_the_history(room: Any) -> None:
    room.tool("read")
    room.on("prompt:submit", action="inject_context", context_injection="now only", ephemeral=True)
    await room.run("go", room.calls("read"), "done")
    seen = [[str(message.content) for message in request.messages] for request in room.model.requests]
    assert ["now only" in messages for messages in seen] == [True, False]
    assert "now only" not in [content for _, content in room.history()]


async def test_an_injection_can_be_appended_to_the_last_tool_result(room: Any) -> None:
    room.tool("read")
    injection = {"context_injection": "hint", "ephemeral": True, "append_to_last_tool_result": True}
    room.on("tool:post", action="inject_context", **injection)
    await room.run("go", room.calls("read"), "done")
    assert room.model.requests[1].messages[-1].content == "read\n\nhint"
    assert room.results() == [("1", "read")]


async def test_a_denied_prompt_reaches_neither_history_nor_model(room: Any) -> None:
    room.on("prompt:submit", action="deny", reason="closed")
    assert await room.run("go") == "Denied by hook: closed"
    assert (room.history(), room.model.requests) == ([], [])
    [end] = room.data("orchestrator:complete")
    assert (end["status"], end["reason"]) == ("incomplete", "Denied by hook: closed")
    assert room.data("execution:end") == []


async def test_a_hook_changes_the_prompt(room: Any) -> None:
    room.on("prompt:submit", action="modify", data={"prompt": "go slowly"})
    await room.run("go", "done")
    assert room.history()[0] == ("user", "go slowly")


async def test_a_denied_request_ends_the_turn_incomplete(room: Any) -> None:
    room.on("provider:request", action="deny", reason="budget spent")
    assert await room.run("go") == "Denied by hook: budget spent"
    assert room.data("orchestrator:complete")[0]["status"] == "incomplete"
    assert room.model.requests == []


# limits, providers, errors


async def test_a_turn_that_reaches_its_limit_is_incomplete_and_says_so(room: Any) -> None:
    room.tool("read")
    text = await room.run("go", room.calls("read"), room.calls("read"), config={"max_iterations": 2})
    assert "2 model calls" in text
    assert room.data("orchestrator:complete")[0]["status"] == "incomplete"
    assert room.history()[-1] == ("tool", "read")


async def test_a_limit_of_minus_one_is_none(room: Any) -> None:
    room.tool("read")
    answers = [room.calls("read")] * 60
    assert await room.run("go", *answers, "done", config={"max_iterations": -1}) == "done"


@pytest.mark.parametrize("value", [0, -2, "many", 1.5, True])
async def test_a_limit_that_is_none_is_refused_at_mount(value: Any) -> None:
    with pytest.raises(ValueError, match="loop-basic: max_iterations: must be"):
        await amplifier_loop_basic.mount(ModuleCoordinator(), {"max_iterations": value})
    with pytest.raises(ValueError, match="loop-basic: max_iterations: must be"):
        amplifier_loop_basic.check_config({"max_iterations": value})


def test_a_provider_that_is_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match="loop-basic: default_provider: Input should be a valid string, not 5"):
        amplifier_loop_basic.check_config({"default_provider": 5})


def test_editors_know_its_keys() -> None:
    assert set(amplifier_loop_basic.config_schema()["properties"]) == {
        "max_iterations",
        "max_parallel_tools",
        "max_result_chars",
        "default_provider",
    }


def test_a_mistyped_key_is_refused_and_one_of_another_program_is_a_warning() -> None:
    (warning,) = amplifier_loop_basic.check_config({"max_iterations": 5, "extended_thinking": True})
    assert warning.startswith("extended_thinking: unknown key without effect; known are ")
    with pytest.raises(ValueError, match="loop-basic: max_iteration: unknown key; did you mean 'max_iterations'"):
        amplifier_loop_basic.check_config({"max_iteration": 5})


@pytest.mark.parametrize(
    ("config", "chosen"),
    [({}, "c"), ({"default_provider": "b"}, "b"), ({"default_provider": "provider-a"}, "a")],
)
async def test_the_provider_is_the_named_one_or_the_one_of_lowest_priority(
    room: Any, scripted: Any, config: dict[str, Any], chosen: str
) -> None:
    providers = {
        "a": scripted("a", ("from a",)),
        "b": scripted("b", ("from b",), config={"priority": 50}),
        "c": scripted("c", ("from c",), priority=10),
    }
    assert await room.run("go", config=config, providers=providers) == f"from {chosen}"


async def test_providers_of_equal_priority_are_taken_in_the_order_of_mounting(room: Any, scripted: Any) -> None:
    providers = {"z": scripted("z", ("from z",)), "a": scripted("a", ("from a",))}
    assert await room.run("go", providers=providers) == "from z"


async def test_a_provider_that_is_not_mounted_is_an_error_naming_those_that_are(room: Any) -> None:
    with pytest.raises(LookupError, match=r"default_provider 'gone' is not mounted. Mounted: model"):
        await room.run("go", config={"default_provider": "gone"})


async def test_an_error_of_the_provider_is_announced_and_raised_as_it_is(room: Any) -> None:
    error = RateLimitError("slow down", status_code=429)
    with pytest.raises(RateLimitError) as caught:
        await room.run("go", error)
    assert caught.value is error
    assert room.names()[-3:] == ["provider:error", "orchestrator:complete", "execution:end"]
    told = room.data("provider:error")[0]
    assert told["error"] == {"type": "RateLimitError", "msg": "slow down"}
    assert (told["retryable"], told["status_code"]) == (True, 429)
    assert room.data("orchestrator:complete")[0]["status"] == "error"


async def test_an_error_of_the_provider_without_a_readable_text_is_raised_as_it_is(room: Any) -> None:
    with pytest.raises(MuteError):
        await room.run("go", MuteError())
    assert room.data("provider:error")[0]["error"] == {"type": "MuteError", "msg": ""}


# the format of the answer

FORMAT = {"type": "json_schema", "json_schema": {"name": "count", "schema": {"type": "object"}}}


class OfAnotherMake(Exception):
    """The error of a service, from a provider that translates none."""

    status_code = 400


def formats(room: Any) -> list[Any]:
    """Return the wanted format of each request so far."""
    return [request.response_format and request.response_format.model_dump() for request in room.model.requests]


async def test_the_requests_of_a_session_ask_for_the_format_that_it_wants(room: Any) -> None:
    room.tool("read")
    await room.run("go", "done")
    room.coordinator.register_capability("turn.response_format", FORMAT)
    await room.run("go", room.calls("read"), "{}")
    assert formats(room) == [None, {**FORMAT, "strict": None}, {**FORMAT, "strict": None}]
    assert room.model.requests[1].tools


@pytest.mark.parametrize("error", [InvalidRequestError("400: no such schema", status_code=400), OfAnotherMake("400")])
async def test_a_refused_format_is_left_out_for_the_rest_of_the_turn(room: Any, error: Exception) -> None:
    room.tool("read")
    room.coordinator.register_capability("turn.response_format", FORMAT)
    assert await room.run("go", error, room.calls("read"), "done") == "done"
    assert [wanted is None for wanted in formats(room)] == [False, True, True]
    assert not room.data("provider:error")
    assert len(room.data("provider:request")) == 2


@pytest.mark.parametrize("error", [RateLimitError("slow down", status_code=429), ContextLengthError("too long")])
async def test_another_error_than_a_refusal_is_raised_with_a_format_as_without(room: Any, error: Exception) -> None:
    room.coordinator.register_capability("turn.response_format", FORMAT)
    with pytest.raises(type(error)) as caught:
        await room.run("go", error)
    assert caught.value is error
    assert len(room.model.requests) == len(room.data("provider:error")) == 1


# going on


async def test_an_empty_prompt_goes_on_with_a_history_that_waits_for_the_model(room: Any) -> None:
    room.context.messages = [{"role": "user", "content": "go"}]
    assert await room.run("", "done") == "done"
    assert [role for role, _ in room.history()] == ["user", "assistant"]


async def test_an_empty_prompt_goes_on_after_calls_that_have_no_result_at_all(room: Any) -> None:
    await room.run("go", room.calls("read"), "done")
    del room.context.messages[-2:]
    assert await room.run("", "done") == "done"
    assert [role for role, _ in room.history()] == ["user", "assistant", "tool", "assistant"]


async def test_an_empty_prompt_after_an_answer_is_a_prompt(room: Any) -> None:
    await room.run("go", "done")
    await room.run("", "again")
    assert [role for role, _ in room.history()] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize("prompt", ["", "and now?"])
async def test_calls_that_a_crash_left_open_are_answered_and_not_run_again(room: Any, prompt: str) -> None:
    tool = room.tool("read")
    await room.run("go", room.calls("read", "read"), "done")
    del room.context.messages[-2:]
    tool.inputs.clear()
    await room.run(prompt, "done")
    assert tool.inputs == []
    (first, kept), (second, told) = room.results()
    assert (first, kept, second) == ("1", "read", "2")
    assert "was not run again" in told
    roles = ["user", "assistant", "tool", "tool", *(["user"] if prompt else []), "assistant"]
    assert [role for role, _ in room.history()] == roles


# the module


async def test_it_is_the_orchestrator_that_the_entry_point_names(room: Any) -> None:
    (entry,) = entry_points(group="amplifier.modules", name="loop-basic")
    await entry.load()(room.coordinator, {})
    orchestrator = room.coordinator.get("orchestrator")
    assert isinstance(orchestrator, amplifier_loop_basic.BasicOrchestrator)
    assert orchestrator.continues_history is True


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, amplifier_loop_basic; print({'pydantic', 'asyncio'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"


# the end of a turn


async def test_a_hook_may_give_a_turn_more_to_do_when_it_would_end(room: Any) -> None:
    reasons = ["run the tests", "commit", None]

    async def answer(event: str, data: dict[str, Any]) -> HookResult:
        reason = reasons.pop(0)
        return HookResult(action="deny", reason=reason) if reason else HookResult()

    room.hooks.register("turn:stop", answer)
    assert await room.run("go", "one", "two", "three") == "three"
    assert [text for role, text in room.history() if role == "user"] == ["go", "run the tests", "commit"]
    assert room.data("orchestrator:complete")[0]["status"] == "success"


async def test_a_hook_that_never_lets_a_turn_end_meets_its_limit(room: Any) -> None:
    room.on("turn:stop", action="deny", reason="more")
    assert "max_iterations" in await room.run("go", *["again"] * 3, config={"max_iterations": 3})
    assert room.data("orchestrator:complete")[0]["status"] == "incomplete"


async def test_a_turn_without_an_answer_is_not_asked_whether_it_may_end(room: Any) -> None:
    room.on("turn:stop", action="deny", reason="more")
    await room.run("go", ChatResponse(content=[TextBlock(text="I stop")], finish_reason="length"))
    assert room.data("orchestrator:complete")[0]["status"] == "incomplete"


async def test_a_hook_may_change_the_error_of_a_tool(room: Any) -> None:
    async def fail(input: dict[str, Any]) -> None:
        raise ValueError("the customer is Joe")

    async def hide(event: str, data: dict[str, Any]) -> HookResult:
        error = {**data["error"], "msg": data["error"]["msg"].replace("Joe", "X")}
        return HookResult(action="modify", data={**data, "error": error})

    room.tool("read", fail)
    room.hooks.register("tool:error", hide)
    await room.run("go", room.calls("read"), "done")
    assert room.results() == [("1", "Error: ValueError: the customer is X")]


async def test_a_loop_built_on_this_one_adds_messages_at_each_step(room: Any) -> None:
    class AddingTurn(Turn):
        async def take_in(self) -> None:
            await self.context.add_message({"role": "user", "content": f"step {self.iterations}"})

    class AddingLoop(amplifier_loop_basic.BasicOrchestrator):
        def make_turn(self, **parts: Any) -> Turn:
            return AddingTurn(**parts)

    room.coordinator.mount_points["orchestrator"] = AddingLoop()
    room.tool("look")
    await room.run("go", room.calls("look"), "done")
    assert [text for role, text in room.history() if role == "user"] == ["go", "step 1", "step 2"]
