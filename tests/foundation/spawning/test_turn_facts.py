"""The text of a stream, as `amplifier run` sees it."""

from __future__ import annotations

from typing import Any

from amplifier_core import AmplifierSession
from amplifier_foundation.spawning.turn_facts import FactReporter

START, DELTA = "llm:stream_block_start", "llm:stream_block_delta"


async def test_thinking_is_no_text_also_when_only_its_start_says_so() -> None:
    told: list[dict[str, Any]] = []
    session = AmplifierSession({"session": {"orchestrator": "loop-basic", "context": "context-simple"}})
    FactReporter(told.append).attach(session)
    for event, data in (
        (START, {"block_index": 0, "block_type": "thinking"}),
        (DELTA, {"block_index": 0, "text": "hm"}),
        (START, {"block_index": 1, "block_type": "text"}),
        (DELTA, {"block_index": 1, "text": "Hello"}),
        (START, {"block_index": 0, "block_type": "text"}),
        (DELTA, {"block_index": 0, "text": "!"}),
    ):
        await session.coordinator.hooks.emit(event, data)
    assert [(fact["text"], fact["block"]) for fact in told] == [("Hello", 1), ("!", 0)]


async def test_the_progress_of_a_call_is_shown_where_a_person_waits() -> None:
    for waits, expected in ((True, [{"type": "waiting", "on": "mcp__a__build 1 of 2: linking"}]), (False, [])):
        told: list[dict[str, Any]] = []
        session = AmplifierSession({"session": {"orchestrator": "loop-basic", "context": "context-simple"}})
        FactReporter(told.append, waits=waits).attach(session)
        await session.coordinator.hooks.emit(
            "tool:progress", {"tool_name": "mcp__a__build", "text": "1 of 2: linking\n"}
        )
        assert told == expected


async def test_a_display_that_fails_is_no_guard() -> None:
    def fail(fact: dict[str, Any]) -> None:
        raise OSError("no room")

    session = AmplifierSession({"session": {"orchestrator": "loop-basic", "context": "context-simple"}})
    reporter = FactReporter(fail)
    reporter.attach(session)
    session.coordinator.hooks.register("tool:pre", lambda event, data: None, name="another")
    assert (await session.coordinator.hooks.emit("tool:pre", {"tool_name": "bash"})).action == "continue"
    reporter.detach()
    assert session.coordinator.hooks.list_handlers() == {"tool:pre": ["another"]}
