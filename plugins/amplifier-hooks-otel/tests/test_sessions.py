"""The spans of sessions in this process: turns, model calls and tool calls, with and without their content."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator
from amplifier_core.correlation import traceparent
from amplifier_core.events import TOOL_PRE
from amplifier_core.plugins import load_plugins
from amplifier_hooks_otel.ids import trace_id_of, turn_span

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.wire.collector import Collector, Span

    Flush = Callable[[], None]

RULES = [
    {"when": {"user": "^read (?P<path>.+)"}, "call": {"tool": "read_file", "input": {"file_path": "{path}"}}},
    {
        "when": {"user": "^both"},
        "call": [{"tool": "read_file", "input": {"file_path": f"{name}.txt"}} for name in "ab"],
    },
    {"when": {"user": "^call nobody"}, "call": {"tool": "nobody", "input": {}}},
    {"when": {"tool": "read_file"}, "say": "Read."},
    {"when": {"tool": "nobody"}, "say": "Nobody."},
    {"when": {"user": "^say (?P<text>.+)"}, "say": "{text}"},
]


def plan(collector: Collector, **config: Any) -> dict[str, Any]:
    """Return the plan of a session with a tool for files."""
    return {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-playbook", "config": {"rules": RULES}}],
        "tools": [{"module": "tool-filesystem"}],
        "hooks": [{"module": "hooks-otel", "config": {"endpoint": collector.endpoint, **config}}],
    }


async def take_turns(collector: Collector, flush: Flush, folder: Path, *prompts: str, **config: Any) -> list[Span]:
    """Take turns in a session, and return its spans in the order of their begin."""
    session = AmplifierSession(plan(collector, **config), session_id="reader-0123456789ab")
    session.coordinator.register_capability("session.working_dir", str(folder))
    async with session:
        for prompt in prompts:
            await session.execute(prompt)
    await asyncio.to_thread(flush)
    return sorted(collector.received.spans, key=lambda span: span.start)


def names(spans: list[Span]) -> list[str]:
    return [span.name for span in spans]


async def test_a_turn_has_its_model_calls_and_its_tool_calls_below_it(
    tmp_path: Path, collector: Collector, flush: Flush
) -> None:
    (tmp_path / "a.txt").write_text("a")
    turn, first, tool, second = await take_turns(collector, flush, tmp_path, "read a.txt")
    assert [turn.name, first.name, tool.name, second.name] == [
        "invoke_agent reader",
        "chat playbook",
        "execute_tool read_file",
        "chat playbook",
    ]
    assert (turn.trace, turn.parent) == (f"{trace_id_of('reader-0123456789ab'):032x}", "")
    assert {span.parent for span in (first, tool, second)} == {turn.id}
    assert turn.id == f"{turn_span('reader-0123456789ab', 1):016x}"
    assert turn.start <= first.start <= first.end <= tool.start <= tool.end <= second.start <= second.end <= turn.end
    assert [span.kind for span in (turn, first, tool)] == [1, 3, 1]
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert first.attributes["gen_ai.usage.input_tokens"] > 0
    assert tool.attributes["gen_ai.tool.call.id"] == "call_1"
    assert not any(span.failed for span in (turn, first, tool, second))
    assert traceparent.get() is None


async def test_metrics_count_tokens_and_time(tmp_path: Path, collector: Collector, flush: Flush) -> None:
    spans = await take_turns(collector, flush, tmp_path, "say one", "say two")
    points = {(point.name, point.attributes.get("gen_ai.token.type")): point for point in collector.received.points}
    used = sum(span.attributes.get("gen_ai.usage.output_tokens", 0) for span in spans)
    assert points["gen_ai.client.token.usage", "output"].value == (2, used)
    assert points["gen_ai.client.operation.duration", None].value[0] == 2
    assert points["gen_ai.client.operation.duration", None].unit == "s"


async def test_later_turns_are_below_the_first(tmp_path: Path, collector: Collector, flush: Flush) -> None:
    spans = await take_turns(collector, flush, tmp_path, "say one", "say two", "say three")
    turns = [span for span in spans if span.name == "invoke_agent reader"]
    assert [turn.parent for turn in turns] == ["", turns[0].id, turns[0].id]
    assert [turn.attributes["amplifier.turn"] for turn in turns] == [1, 2, 3]


async def test_calls_side_by_side_have_a_span_each(tmp_path: Path, collector: Collector, flush: Flush) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name)
    spans = await take_turns(collector, flush, tmp_path, "both")
    tools = [span for span in spans if span.name == "execute_tool read_file"]
    assert [tool.attributes["gen_ai.tool.call.id"] for tool in tools] == ["call_1", "call_2"]
    assert {tool.parent for tool in tools} == {spans[0].id}


async def test_failures_have_their_type_and_not_their_text(tmp_path: Path, collector: Collector, flush: Flush) -> None:
    spans = await take_turns(collector, flush, tmp_path, "read secret-name.txt", "call nobody")
    errors = {span.name: span.attributes["error.type"] for span in spans if span.failed}
    assert errors == {"execute_tool read_file": "tool_failed", "execute_tool nobody": "UnknownTool"}
    assert not any(b"secret-name" in body for body in collector.received.bodies)


async def test_a_failing_model_call_fails_its_turn(tmp_path: Path, collector: Collector, flush: Flush) -> None:
    with pytest.raises(Exception, match="no rule"):
        await take_turns(collector, flush, tmp_path, "what no rule knows")
    flush()
    errors = {span.name: span.attributes["error.type"] for span in collector.received.spans}
    assert errors == {"chat playbook": "InvalidRequestError", "invoke_agent reader": "InvalidRequestError"}
    assert not any(b"what no rule" in body for body in collector.received.bodies)


async def test_content_is_recorded_on_demand_redacted_and_bounded(
    tmp_path: Path, collector: Collector, flush: Flush
) -> None:
    key = "sk-" + "a1" * 20
    (tmp_path / "a.txt").write_text(f"password: hunter2-hunter2\n{'long ' * 20_000}")
    spans = await take_turns(collector, flush, tmp_path, f"say {key} and a word", "read a.txt", record_content=True)
    texts = [text for span in spans for text in span.attributes.values() if isinstance(text, str)]
    assert any("and a word" in text for text in texts)
    assert any('"a.txt"' in text for text in texts)
    assert any("[cut]" in text for text in texts)
    assert not any(key in text or "hunter2" in text for text in texts)
    assert max(map(len, texts)) < 10_000
    said = [json.loads(span.attributes["gen_ai.output.messages"]) for span in spans if span.name == "chat playbook"]
    assert said[0][0]["parts"] == [{"type": "text", "content": "[REDACTED] and a word"}]
    assert said[1][0]["parts"][0]["arguments"] == '{"file_path": "a.txt"}'
    assert said[1][0]["finish_reason"] == "tool_calls"


async def test_without_content_no_word_of_it_is_exported(tmp_path: Path, collector: Collector, flush: Flush) -> None:
    (tmp_path / "a.txt").write_text("confidential")
    await take_turns(collector, flush, tmp_path, "say confidential", "read a.txt")
    assert collector.received.bodies
    assert not any(word in body for body in collector.received.bodies for word in (b"confidential", b"a.txt"))


async def test_a_trace_outside_of_the_sample_is_not_exported_but_measured(
    tmp_path: Path, collector: Collector, flush: Flush
) -> None:
    assert await take_turns(collector, flush, tmp_path, "say one", sample_ratio=0) == []
    assert {point.name for point in collector.received.points} >= {"gen_ai.client.operation.duration"}


async def test_a_fork_of_a_live_session_is_in_its_trace_and_linked_with_its_turn(
    tmp_path: Path, collector: Collector, flush: Flush
) -> None:
    session = AmplifierSession(plan(collector), session_id="source-0123456789ab", plugins=load_plugins())
    async with session:
        await session.execute("say one")
        await session.execute("say two")
        fork = await session.fork()
        await fork.execute("say three")
        await fork.cleanup()
    await asyncio.to_thread(flush)
    turns = [span for span in collector.received.spans if span.name.startswith("invoke_agent")]
    [forked] = [turn for turn in turns if turn.attributes["gen_ai.conversation.id"] == fork.session_id]
    [second] = [turn for turn in turns if turn.attributes["amplifier.turn"] == 2]
    assert forked.links == [(second.trace, second.id)]
    assert (forked.trace, forked.parent) == (second.trace, second.id)
    assert forked.attributes["amplifier.fork.of"] == forked.attributes["amplifier.parent.id"] == session.session_id


async def test_a_call_that_a_guard_refuses_has_a_span_that_says_so(
    tmp_path: Path, collector: Collector, flush: Flush
) -> None:
    session = AmplifierSession(plan(collector))
    async with session:
        session.coordinator.hooks.register(TOOL_PRE, lambda event, data: {"action": "deny", "reason": "no files"})
        await session.execute("read a.txt")
    await asyncio.to_thread(flush)
    [tool] = [span for span in collector.received.spans if span.name == "execute_tool read_file"]
    assert tool.attributes["error.type"] == "Denied"


async def test_a_provider_asked_beside_the_loop_has_a_span_too(collector: Collector, flush: Flush) -> None:
    coordinator = await mounted(collector)
    about = {"provider": "gemini", "model": "small"}
    await coordinator.hooks.emit("llm:request", about)
    await coordinator.hooks.emit("llm:response", {**about, "status": "ok", "usage": {"input_tokens": 3}})
    await coordinator.cleanup()
    await asyncio.to_thread(flush)
    [chat] = collector.received.spans
    assert (chat.name, chat.attributes["gen_ai.provider.name"]) == ("chat small", "gcp.gemini")
    assert chat.attributes["gen_ai.usage.input_tokens"] == 3


async def test_a_session_that_is_cut_ends_its_open_spans(collector: Collector, flush: Flush) -> None:
    coordinator = await mounted(collector)
    await coordinator.hooks.emit("prompt:submit", {"prompt": "go"})
    await coordinator.hooks.emit("provider:request", {"provider": "x", "iteration": 1})
    await coordinator.hooks.emit("tool:pre", {"tool_name": "t", "tool_input": {}, "parallel_group_id": "g"})
    await coordinator.cleanup()
    await asyncio.to_thread(flush)
    assert {span.attributes["error.type"] for span in collector.received.spans} == {"cancelled"}
    assert len(collector.received.spans) == 3


async def test_odd_events_refuse_no_call_and_raise_nothing(collector: Collector, flush: Flush) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("odd")

    coordinator = await mounted(collector, record_content=True)
    for event in ("prompt:submit", "provider:request", "llm:request", "llm:response", "tool:pre", "tool:post"):
        odd = {name: Odd() for name in ("prompt", "provider", "model", "usage", "tool_name", "tool_input", "result")}
        assert (await coordinator.hooks.emit(event, odd)).action == "continue"
        assert (await coordinator.hooks.emit(event, {})).action == "continue"
    await coordinator.cleanup()


async def mounted(collector: Collector, **config: Any) -> ModuleCoordinator:
    """Return a coordinator with the hook."""
    from amplifier_hooks_otel import mount

    coordinator = ModuleCoordinator(session_id="s")
    cleanup = await mount(coordinator, {"endpoint": collector.endpoint, **config})
    assert cleanup is not None
    coordinator.register_cleanup(cleanup)
    return coordinator
