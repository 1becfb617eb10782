"""The stand-ins that modules are tested with."""

from __future__ import annotations

import pytest

from amplifier_core import testing
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.interfaces import ContextManager, Tool
from amplifier_core.models import ToolResult
from amplifier_core.testing import (
    EventRecorder,
    MockContextManager,
    MockTool,
    ScriptedOrchestrator,
    create_test_coordinator,
)


async def test_a_tool_returns_its_output_and_keeps_what_it_was_asked() -> None:
    plain, failing = MockTool(), MockTool("fails", OSError("disk"))
    tool: Tool = plain  # as type checkers see it
    assert await tool.execute({"a": 1}) == ToolResult(output="Success")
    assert (plain.calls, plain.call_count) == ([{"a": 1}], 1)
    with pytest.raises(OSError, match="disk"):
        await failing.execute({})


async def test_a_context_begins_empty_or_with_copies_of_what_it_is_given() -> None:
    given = {"role": "user", "content": "hi"}
    context = MockContextManager([given])
    assert isinstance(context, ContextManager)
    given["content"] = "changed"
    assert await context.get_messages_for_request() == [{"role": "user", "content": "hi"}]
    assert await MockContextManager().get_messages() == []


async def test_an_orchestrator_says_its_lines_and_tells_the_context_both_sides() -> None:
    orchestrator = ScriptedOrchestrator(["one"])
    context = MockContextManager()
    said = [await orchestrator.execute(prompt, context, {}, {}, EventRecorder()) for prompt in ("a", "b")]
    assert said == ["one", "DONE"]
    assert [(each["role"], each["content"]) for each in context.messages] == [
        ("user", "a"),
        ("assistant", "one"),
        ("user", "b"),
        ("assistant", "DONE"),
    ]


async def test_a_recorder_stands_for_a_registry_and_for_a_handler() -> None:
    recorder = EventRecorder()
    assert (await recorder.emit("a", {"n": 1})).action == "continue"
    await recorder.record("b", {"n": 2})
    assert recorder.events == [("a", {"n": 1}), ("b", {"n": 2})]
    assert recorder.get_events("b") == [("b", {"n": 2})]
    recorder.clear()
    assert recorder.get_events() == []


async def test_a_coordinator_for_tests_has_a_context_and_a_tool_that_works_and_one_that_fails() -> None:
    coordinator = create_test_coordinator()
    tools = coordinator.get("tools")
    results = {name: await tool.execute({}) for name, tool in tools.items()}
    assert {name: result.success for name, result in results.items()} == {"echo": True, "fail": False}
    assert results["echo"].output == "Echo response"
    assert isinstance(coordinator.get("context"), ContextManager)
    assert coordinator.config["session"] == {"orchestrator": "test-orchestrator", "context": "test-context"}


async def test_a_coordinator_for_tests_keeps_what_is_mounted_and_unmounted() -> None:
    coordinator, tool = create_test_coordinator(), MockTool("own")
    assert (isinstance(coordinator, ModuleCoordinator), coordinator.session_id) == (True, "test-session")
    assert coordinator.mount_history == []
    await coordinator.mount("tools", tool)
    await coordinator.unmount("tools", "own")
    assert coordinator.mount_history == [{"mount_point": "tools", "module": tool, "name": None}]
    assert coordinator.unmount_history == [{"mount_point": "tools", "name": "own"}]


def test_the_coordinator_s_older_name_is_no_class_of_tests() -> None:
    assert testing.TestCoordinator is testing.MockCoordinator
    assert testing.TestCoordinator.__test__ is False
