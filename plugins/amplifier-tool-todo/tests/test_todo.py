"""The list of tasks: its rules, and how it survives in the history of a session."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_core.transcript import Transcript
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests
from amplifier_tool_todo import check_config, config_schema, mount
from amplifier_tool_todo.tool import MOST_TASKS

if TYPE_CHECKING:
    from pathlib import Path


class TestStructure(ToolStructuralTests):
    """The structure of every tool's module."""


class TestBehavior(ToolBehaviorTests):
    """The behavior of every tool."""


def task(content: str, status: str = "pending") -> dict[str, str]:
    return {"content": content, "status": status, "activeForm": content}


@pytest.fixture
async def coordinator() -> ModuleCoordinator:
    coordinator = ModuleCoordinator(session_id="test")
    await mount(coordinator)
    return coordinator


async def call(coordinator: ModuleCoordinator, given: Any) -> Any:
    return await coordinator.get("tools", "todo").execute(given)


def state_of(coordinator: ModuleCoordinator) -> Any:
    return coordinator.todo_state  # type: ignore[attr-defined]


async def test_a_list_is_created_updated_and_read(coordinator: ModuleCoordinator) -> None:
    assert state_of(coordinator) == []
    made = await call(coordinator, {"action": "create", "todos": [task("a"), {"content": "b", "status": "pending"}]})
    assert made.output == {"status": "created", "count": 2, "pending": 2, "in_progress": 0, "completed": 0}
    todos = [task("a", "completed"), {"content": "b", "status": "in_progress", "activeForm": "doing b"}]
    changed = await call(coordinator, {"action": "update", "todos": todos})
    assert changed.output == {"status": "updated", "count": 2, "pending": 0, "in_progress": 1, "completed": 1}
    assert (await call(coordinator, {"action": "list"})).output == {"status": "listed", "count": 2, "todos": todos}
    assert state_of(coordinator) == todos


TEXT = "must be a text of 1 to 1000 characters"
STATUS = "'status' must be pending, in_progress, completed, not"
TWO_RUN = [task("a", "in_progress"), task("b"), task("c", "in_progress")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "the input must be an object, not list"),
        ({}, "'action' must be create, update or list, not None"),
        ({"action": "add"}, "'action' must be create, update or list, not 'add'"),
        ({"action": ["create"]}, "'action' must be create, update or list, not ['create']"),
        ({"action": "a" * 9_000}, f"'action' must be create, update or list, not '{'a' * 59}"),
        ({"action": "create"}, "create needs 'todos', the list of all tasks"),
        ({"action": "create", "todo": []}, "unknown field 'todo'; did you mean 'todos'?"),
        (["x"], "todos[0] must be an object with content and status, not str"),
        ([{"content": "x"}], f"todos[0]: {STATUS} None"),
        ([{"content": " ", "status": "pending"}], f"todos[0]: 'content' {TEXT}"),
        ([task("a"), {"content": 5, "status": "pending"}], f"todos[1]: 'content' {TEXT}"),
        ([{"content": "x", "status": ["pending"]}], f"todos[0]: {STATUS} ['pending']"),
        ([{**task("x"), "activeform": "y"}], "todos[0]: unknown field 'activeform'; did you mean 'activeForm'?"),
        (TWO_RUN, "tasks 0, 2 are in_progress; only one may be, set the others to pending"),
        ([task("a")] * (MOST_TASKS + 1), "201 tasks are too many, 200 are allowed; put small ones together"),
    ],
)
async def test_a_call_that_breaks_a_rule_changes_nothing(
    coordinator: ModuleCoordinator, given: Any, message: str
) -> None:
    await call(coordinator, {"action": "create", "todos": [task("first")]})
    result = await call(
        coordinator, {"action": "update", "todos": given} if given and isinstance(given, list) else given
    )
    assert (result.success, result.error) == (False, {"message": message, "type": "InvalidInput"})
    assert state_of(coordinator) == [task("first")]


def calls(number: int, *todos: dict[str, str], tool: str = "todo") -> dict[str, Any]:
    arguments = {"action": "update", "todos": list(todos)}
    return {"role": "assistant", "tool_calls": [{"id": f"c{number}", "tool": tool, "arguments": arguments}]}


def answers(number: int, text: str = '{"status": "updated", "count": 1}', tool: str = "todo") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "name": tool, "content": text}


@pytest.mark.parametrize(
    ("more", "content"),
    [
        ([], "one"),
        ([calls(2, task("two")), answers(2)], "two"),
        ([calls(2, task("two"))], "one"),
        ([calls(2, task("two")), answers(2, "Error: cancelled while the tool call ran.")], "one"),
        ([calls(2, task("two")), answers(2, '["updated"]')], "one"),
        ([calls(2, task("two"), tool="other"), answers(2, tool="other")], "one"),
        ([calls(2, {"content": "of another tool"}), answers(2)], "one"),
        ([calls(2, task("two")), answers(2, "[" * 9_000)], "one"),
    ],
)
async def test_the_list_is_that_of_the_last_call_with_a_result(more: list[dict[str, Any]], content: str) -> None:
    messages = [{"role": "user", "content": "go"}, calls(1, task("one")), answers(1), *more]
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.transcript", Transcript(messages))
    await mount(coordinator)
    await coordinator.hooks.emit("prompt:submit", {"prompt": "go on"})
    assert [each["content"] for each in state_of(coordinator)] == [content]


async def test_the_list_is_read_from_the_context_where_the_session_has_no_transcript() -> None:
    class Context:
        async def get_messages(self) -> list[dict[str, Any]]:
            return [calls(1, task("one")), answers(1)]

    coordinator = ModuleCoordinator(session_id="test")
    await coordinator.mount("context", Context())
    await mount(coordinator)
    assert (await call(coordinator, {"action": "list"})).output["todos"] == [task("one")]


async def test_what_a_hook_sets_is_what_the_tool_returns(coordinator: ModuleCoordinator) -> None:
    await call(coordinator, {"action": "list"})
    coordinator.todo_state = [task("by another module")]  # type: ignore[attr-defined]
    assert (await call(coordinator, {"action": "list"})).output["todos"] == [task("by another module")]


def test_no_permission_is_asked_in_any_mode(tmp_path: Path) -> None:
    from amplifier_tool_todo.tool import TodoTool

    for mode in ("read-only", "ask", "auto"):
        gate = PermissionGate(Policy([parse_permissions({"mode": mode}, "settings", is_own=True)]), tmp_path)
        gate.untrusted = "it has read a page"
        tool = TodoTool(ModuleCoordinator(session_id="test"))
        data = {"tool_name": "todo", "tool_input": {"action": "create", "todos": [task("a")]}}
        assert gate.check(data, {"todo": tool}) is None


def test_there_is_nothing_to_configure() -> None:
    assert config_schema()["properties"] == {}
    with pytest.raises(ValueError, match="tool-todo: limit: unknown key; the tool has no configuration"):
        check_config({"limit": 5})


def test_importing_the_package_loads_neither_pydantic_nor_asyncio() -> None:
    code = (
        "import sys, amplifier_tool_todo; "
        "print([name for name in ('pydantic', 'asyncio', 'amplifier_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
