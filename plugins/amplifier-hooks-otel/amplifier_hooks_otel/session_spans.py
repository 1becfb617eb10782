"""Make the spans of one session from its events: its turns and its tool calls; `model_calls` makes those within."""

from __future__ import annotations

import sys
from datetime import datetime
from time import time_ns
from typing import TYPE_CHECKING, Any

from amplifier_core import events

from .content import as_answer, as_content, as_prompt
from .ids import Place, random_span
from .model_calls import ModelCalls
from .placing import place_session
from .reading import call_of, find_agent, find_error_type, find_present_span, guard, read
from .records import SpanRecord
from .sampling import is_sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_core import ModuleCoordinator

    from .pipeline import Pipeline
    from .placing import Placing
    from .reading import Handler

LAST = 1_000_000
"""The priority of the hooks: a guard that refuses comes before."""
MOST_TOOLS = 1_000
"""Open tool calls of a turn; more have no span."""


def _is_told_by_another() -> bool:
    """Return whether this process has lost the one above it: the next attempt at its turn tells of it, as killed."""
    ends = sys.modules.get("amplifier_core.process_ends")  # the published kernel has none
    return ends is not None and ends.has_lost_parent()


class SessionSpans:
    """The spans of one session. At most one turn and one model call are open at a time."""

    def __init__(self, coordinator: ModuleCoordinator, pipeline: Pipeline) -> None:
        self._coordinator = coordinator
        self._pipeline = pipeline
        self._records_content = pipeline.settings.record_content
        self._placing: Placing | None = None
        self._is_sampled = False
        self._turn: SpanRecord | None = None
        self._status = ""
        """The status of the open turn, once its orchestrator tells it."""
        self._tools: dict[str, tuple[SpanRecord, str | None]] = {}
        """The open tool calls, and the present span before each of them."""
        self._calls = ModelCalls(pipeline, self._begin_below, self._finish)
        self._present = find_present_span()
        self._undo: list[Callable[[], None]] = []

    def listen(self) -> None:
        """Register the hooks."""
        handlers: Mapping[str, Handler] = {
            events.PROMPT_SUBMIT: self._begin_turn,
            events.ORCHESTRATOR_COMPLETE: self._note_status,
            events.EXECUTION_END: self._end_turn,
            events.TOOL_PRE: self._begin_tool,
            events.TOOL_POST: self._end_tool,
            events.TOOL_ERROR: self._end_tool,
            **self._calls.handlers,
        }
        register = self._coordinator.hooks.register
        is_awaited = self._present is None  # another kernel
        self._undo = [
            register(event, guard(handle, is_awaited=is_awaited), priority=LAST, name="hooks-otel")
            for event, handle in handlers.items()
        ]

    def close(self) -> None:
        """End what is open, and listen no more."""
        for undo in self._undo:
            undo()
        self._undo = []
        self._finish_turn("cancelled")

    # A turn

    def _begin_turn(self, event: str, data: dict[str, Any]) -> None:
        self._finish_turn("cancelled")
        placing, prompt = self._place(), data.get("prompt")
        place, above = placing.next_turn(prompt if isinstance(prompt, str) else " ")
        turn = self._turn = self._make_turn(place, above)
        if placing.link is not None:
            turn.links = ((placing.link, {"amplifier.link": "fork"}),)
            placing.link = None  # of the first span alone
        if self._records_content and prompt:
            turn.attributes["gen_ai.input.messages"] = as_prompt(str(prompt))
        self._status = ""
        self._set_present(place.traceparent)

    def _place(self) -> Placing:
        """Find the session's place at its first span, and tell of the turn that a killed process left open."""
        if self._placing is not None:
            return self._placing
        placing = self._placing = place_session(self._coordinator)
        self._is_sampled = is_sampled(placing.trace_id, self._pipeline.settings.sample_ratio)
        if placing.cut is not None:
            place, times = placing.cut
            cut = self._make_turn(place, placing.find_above(is_first=placing.turn == 1))
            cut.start, cut.end = (int(datetime.fromisoformat(each).timestamp() * 1e9) for each in times)
            cut.error, cut.attributes["amplifier.turn.status"] = "killed", "killed"
            if "amplifier.attempt" in cut.attributes:
                cut.attributes["amplifier.attempt"] = max(1, placing.attempt - 1)
            self._put(cut)
        return placing

    def _make_turn(self, place: Place, above: Place | None) -> SpanRecord:
        assert self._placing is not None
        agent = find_agent(self._coordinator.session_id)
        turn = SpanRecord(f"invoke_agent {agent}".rstrip(), place, above, time_ns())
        facts = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": self._coordinator.session_id,
            "gen_ai.agent.name": agent,
            "amplifier.parent.id": self._coordinator.parent_id,
            "amplifier.fork.of": self._placing.fork_of,
            "amplifier.turn": self._placing.turn,
            "amplifier.attempt": self._placing.attempt if self._placing.is_woken else None,
        }
        turn.attributes = {name: value for name, value in facts.items() if value}
        return turn

    def _note_status(self, event: str, data: dict[str, Any]) -> None:
        self._status = str(data.get("status") or "")

    def _end_turn(self, event: str, data: dict[str, Any]) -> None:
        if self._turn is not None and self._records_content and data.get("response"):
            self._turn.attributes["gen_ai.output.messages"] = as_answer(str(data["response"]), "stop")
        self._finish_turn(str(data.get("status") or self._status))

    def _finish_turn(self, status: str) -> None:
        for call in list(self._tools):
            self._finish_tool(call, "cancelled")
        self._calls.end("cancelled")
        turn, self._turn = self._turn, None
        if turn is None:
            return
        turn.attributes["amplifier.turn.status"] = status = self._status or status or "success"
        if status in ("error", "failed"):
            error = sys.exc_info()[0]
            turn.error = error.__name__ if error is not None else "error"
        elif status == "cancelled":
            turn.error = "cancelled"
        if not _is_told_by_another():
            self._finish(turn)
        self._set_present(None)

    # A tool call

    def _begin_tool(self, event: str, data: dict[str, Any]) -> None:
        if len(self._tools) < MOST_TOOLS:
            tool = self._open_tool(data)
            self._set_present(tool.place.traceparent)

    def _open_tool(self, data: Mapping[str, Any]) -> SpanRecord:
        name = str(data.get("tool_name") or "")
        tool = self._begin_below("execute_tool")
        tool.name = f"execute_tool {name}"
        tool.attributes |= {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
        if data.get("tool_call_id"):
            tool.attributes["gen_ai.tool.call.id"] = str(data["tool_call_id"])
        if self._records_content:
            tool.attributes["gen_ai.tool.call.arguments"] = as_content(data.get("tool_input"))
        self._tools[call_of(data)] = tool, self._get_present()
        return tool

    def _end_tool(self, event: str, data: dict[str, Any]) -> None:
        call, result = call_of(data), data.get("result")
        error = find_error_type(data) if event == events.TOOL_ERROR else None
        if error is None and read(result, "success") is False:
            error = "tool_failed"
        if call not in self._tools:
            if error is None or len(self._tools) >= MOST_TOOLS:
                return
            self._open_tool(data)  # it was refused before its begin
        if self._records_content and result is not None:
            output = read(result, "output")
            self._tools[call][0].attributes["gen_ai.tool.call.result"] = as_content(
                result if output is None else output
            )
        self._finish_tool(call, error)

    def _finish_tool(self, call: str, error: str | None) -> None:
        tool, before = self._tools.pop(call)
        tool.error = error
        self._finish(tool)
        if self._get_present() == tool.place.traceparent:
            self._set_present(before)

    # Spans

    def _begin_below(self, operation: str) -> SpanRecord:
        """Return an open span below the turn."""
        trace_id = self._place().trace_id
        above = self._turn.place if self._turn is not None else None
        span = SpanRecord(operation, Place(trace_id, random_span()), above, time_ns())
        span.attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.conversation.id": self._coordinator.session_id,
        }
        return span

    def _finish(self, span: SpanRecord) -> None:
        span.end = max(time_ns(), span.start)
        self._put(span)

    def _put(self, span: SpanRecord) -> None:
        if self._is_sampled:
            self._pipeline.put(span)

    def _get_present(self) -> str | None:
        return self._present.get() if self._present is not None else None

    def _set_present(self, traceparent: str | None) -> None:
        if self._present is not None:
            self._present.set(traceparent)
