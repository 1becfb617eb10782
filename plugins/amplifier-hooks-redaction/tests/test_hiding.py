"""Test what a session, its model, its store and its log see."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator
from amplifier_core.message_models import ChatResponse, TextBlock
from amplifier_core.models import HookResult, ToolResult
from amplifier_core.testing import MockTool
from amplifier_core.validation.hook import handlers_of
from amplifier_hooks_redaction import mount
from amplifier_hooks_redaction.hiding import FAILED

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sk-1234567890abcdefghij1234"
CARD = "4111 1111 1111 1111"


async def run(
    folder: Path, output: Any, prompt: str = "go", second: Any = None, **config: Any
) -> tuple[list[str], str, MockTool]:
    """Run a turn with a call of a tool; return the texts of the history, the text of the log, and the tool."""
    rules = [
        {"when": {"user": "go"}, "call": {"tool": "look", "input": {"token": KEY, "note": "INT-7"}}},
        {"when": {"tool": "look"}, "say": "done"},
    ]
    plan: dict[str, Any] = {
        "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-playbook", "config": {"rules": rules}}],
        "hooks": [
            {"module": "hooks-logging", "config": {"path": str(folder / "log")}},
            {"module": "hooks-redaction", "config": config},
            *([{"module": "hooks-redaction", "instance_id": "own-1", "config": second}] if second else []),
        ],
    }
    tool = MockTool("look", output)
    async with AmplifierSession(plan, strict=True) as session:
        await session.coordinator.mount("tools", tool)
        await session.execute(prompt)
        texts = [str(each["content"]) for each in await session.history() if each["role"] in ("user", "tool")]
    return texts, (folder / "log").read_text(), tool


async def test_the_model_and_the_store_see_no_secret_of_a_result(tmp_path: Path) -> None:
    texts, log, tool = await run(tmp_path, f"the key is {KEY}")
    assert texts == ["go", "the key is [REDACTED]"]
    assert tool.calls == [{"token": KEY, "note": "INT-7"}], "a call is not changed"
    assert KEY not in log


async def test_each_scope_is_for_itself(tmp_path: Path) -> None:
    given: dict[str, Any] = {"prompt": "go INT-1", "patterns": {"case": r"INT-\d+"}}
    seen = {}
    for scope in ("tool_results", "prompts", "events"):
        (tmp_path / scope).mkdir()
        texts, log, tool = await run(tmp_path / scope, "case INT-2", scopes=[scope], **given)
        seen[scope] = [*texts, *(case for case in ("INT-1", "INT-2", "INT-7") if case in log)]
        assert tool.calls[0]["note"] == "INT-7"
    assert seen["tool_results"] == ["go INT-1", "case [REDACTED]", "INT-1", "INT-7"]
    assert seen["prompts"] == ["go [REDACTED]", "case INT-2", "INT-2", "INT-7"]
    assert seen["events"] == ["go INT-1", "case INT-2"], "only the log sees less"


@pytest.mark.parametrize("own_scopes", [["events"], ["tool_results"], ["events", "tool_results"]])
@pytest.mark.parametrize("scopes", [["events"], ["tool_results"], ["events", "tool_results"]])
async def test_two_entries_each_hide_their_own(tmp_path: Path, scopes: list[str], own_scopes: list[str]) -> None:
    first: dict[str, Any] = {"patterns": {"case": r"INT-\d+"}, "scopes": scopes}
    second = {"patterns": {"name": "joe"}, "scopes": own_scopes}
    texts, log, tool = await run(tmp_path, "joe has INT-2", second=second, **first)
    assert "INT-2" not in texts[1] or "tool_results" not in scopes
    assert "joe" not in texts[1] or "tool_results" not in own_scopes
    assert texts[1] == "joe has INT-2" or "tool_results" in [*scopes, *own_scopes]
    assert ("INT-2" in log, "joe" in log) == (False, False)
    assert tool.calls == [{"token": KEY, "note": "INT-7"}]


async def test_a_failure_of_a_tool_is_looked_at(tmp_path: Path) -> None:
    texts, _, _ = await run(tmp_path, ValueError("INT-2 is closed"), patterns={"case": r"INT-\d+"})
    assert texts[1] == "Error: ValueError: [REDACTED] is closed"
    failed = ToolResult(success=False, error={"message": "INT-2 is closed"})
    (tmp_path / "b").mkdir()
    texts, _, _ = await run(tmp_path / "b", failed, patterns={"case": r"INT-\d+"})
    assert texts[1] == "[REDACTED] is closed"


async def test_a_result_of_any_shape_is_looked_at(tmp_path: Path) -> None:
    output = {"rows": [{"who": "joe@example.com", "n": 1}, ["joe@example.com"]], "password": "hunter2hunter2"}
    texts, _, _ = await run(tmp_path, output, personal_data=["email"])
    assert json.loads(texts[1]) == {"rows": [{"who": "[REDACTED]", "n": 1}, ["[REDACTED]"]], "password": "[REDACTED]"}


async def test_what_stands_in_its_place_may_say_what_it_was(tmp_path: Path) -> None:
    output = f"{KEY} joe@example.com {CARD} INT-7"
    texts, _, _ = await run(
        tmp_path,
        output,
        patterns={"case": r"INT-\d+"},
        personal_data=["email", "card"],
        replacement="<{name}>",
    )
    assert texts[1] == "<secret> <email> <card> <case>"


async def test_texts_and_fields_of_the_allow_list_stay(tmp_path: Path) -> None:
    output = {"who": "help@example.com", "by": "joe@example.com", "raw": KEY}
    allowed = ["help@example.com", "result.output.raw"]
    texts, _, _ = await run(tmp_path, output, personal_data=["email"], allowlist=allowed)
    assert json.loads(texts[1]) == {"who": "help@example.com", "by": "[REDACTED]", "raw": KEY}


async def test_a_configuration_for_another_redactor_works(tmp_path: Path) -> None:
    texts, log, _ = await run(
        tmp_path,
        "mail joe@example.com",
        rules=["secrets", "pii-basic"],
        allowlist=["session_id"],
        priority=10,
        skip_events=["tool:pre", "tool:post"],
    )
    assert texts[1] == "mail joe@example.com"
    assert "joe@example.com" in log


async def emit(config: dict[str, Any], event: str, data: dict[str, Any]) -> tuple[HookResult, list[dict[str, Any]]]:
    """Return the result of an event, and what handlers see where logs are, and later."""
    coordinator = ModuleCoordinator(session_id="s")
    seen: list[dict[str, Any]] = []
    for priority in (-10_000, 0):
        coordinator.hooks.register(event, lambda event, data: seen.append(data), priority)
    await mount(coordinator, config)
    return await coordinator.hooks.emit(event, data), seen


async def test_guards_see_the_call_itself_and_logs_do_not() -> None:
    given = {"tool_name": "bash", "tool_input": {"command": f"curl -H 'Authorization: Bearer {KEY}' x"}}
    result, (logged, guarded) = await emit({}, "tool:pre", given)
    assert KEY not in str(logged)
    assert guarded["tool_input"] == given["tool_input"]
    assert (result.data or {})["tool_input"] == given["tool_input"]
    assert "redaction" not in (result.data or {})


async def test_a_model_s_response_keeps_its_type() -> None:
    response = ChatResponse(content=[TextBlock(text=f"it is {KEY}")])
    _, (logged, _) = await emit({}, "provider:response", {"response": response, "iteration": 1})
    assert isinstance(logged["response"], ChatResponse)
    assert KEY not in str(logged)
    assert KEY in str(response)


async def test_names_that_programs_compare_stay() -> None:
    given = {"session_id": "+49 30 1234567", "tool_name": "joe@example.com", "path": "a@b.de", "text": "a@b.de"}
    _, (logged, _) = await emit({"personal_data": ["email", "phone"]}, "artifact:write", given)
    assert {key: logged[key] for key in given} == {**given, "text": "[REDACTED]"}


async def test_what_cannot_be_looked_at_is_hidden_as_a_whole(caplog: pytest.LogCaptureFixture) -> None:
    deep: Any = KEY
    for _ in range(100_000):
        deep = [deep]
    result, _ = await emit({}, "tool:post", {"tool_name": "x", "result": deep})
    assert (result.data or {})["result"] == FAILED
    assert "could not be looked at: RecursionError" in caplog.text


async def test_calls_that_a_guard_refuses_leave_nothing_behind() -> None:
    coordinator = ModuleCoordinator(session_id="s")
    coordinator.hooks.register("tool:pre", lambda event, data: HookResult(action="deny"), -15_000)
    cleanup = await mount(coordinator, {})
    handlers = {name: handler for event, name, handler in handlers_of(coordinator) if event == "tool:pre"}
    for _ in range(1500):
        await coordinator.hooks.emit("tool:pre", {"tool_name": "x", "tool_input": {"a": KEY}})
    assert len(handlers["hooks-redaction"].__self__._kept) == 1000
    cleanup()
    assert coordinator.hooks.list_handlers().keys() == {"tool:pre"}
