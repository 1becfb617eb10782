"""What handlers are given, and what comes back where nobody wants anything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amplifier_core.hooks import HookRegistry
from amplifier_core.models import HookResult


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


async def test_without_a_handler_the_data_itself_comes_back(hooks: HookRegistry) -> None:
    hooks.set_default_fields(session_id="s")
    data: dict[str, Any] = {"n": 1}
    result = await hooks.emit("e", data)
    assert result.data is data
    assert data == {"n": 1}


async def test_default_fields_lie_under_the_data_and_leave_the_emitter_s_dict_alone(hooks: HookRegistry) -> None:
    seen: list[dict[str, Any]] = []
    hooks.register("e", lambda event, data: seen.append(data))
    hooks.set_default_fields(session_id="s", parent_id="p")
    hooks.set_default_fields(parent_id="q")
    data = {"session_id": "own"}
    await hooks.emit("e", data)
    assert {name: seen[0][name] for name in ("session_id", "parent_id")} == {"session_id": "own", "parent_id": "q"}
    assert data == {"session_id": "own"}


async def test_an_event_is_stamped_with_the_time_in_utc(hooks: HookRegistry) -> None:
    stamps: list[str] = []
    hooks.register("e", lambda event, data: stamps.append(data["timestamp"]))
    before = datetime.now(UTC) - timedelta(microseconds=1)
    await hooks.emit("e", {})
    await hooks.emit("e", {})
    first, second = map(datetime.fromisoformat, stamps)
    assert before <= first <= second <= datetime.now(UTC)
    assert first.utcoffset() == timedelta(0)


async def test_the_registry_s_timestamp_replaces_the_emitter_s(hooks: HookRegistry) -> None:
    hooks.set_default_fields(timestamp="always")
    hooks.register("e", lambda event, data: None)
    result = await hooks.emit("e", {"timestamp": "then"})
    assert result.data is not None
    assert datetime.fromisoformat(result.data["timestamp"]).tzinfo is UTC


async def test_collecting_stamps_no_time(hooks: HookRegistry) -> None:
    hooks.register("e", lambda event, data: HookResult(data={"seen": dict(data)}))
    assert await hooks.emit_and_collect("e", {"n": 1}) == [{"seen": {"n": 1}}]
    assert await hooks.emit_and_collect("e", {"timestamp": "then"}) == [{"seen": {"timestamp": "then"}}]


async def test_handlers_are_given_the_objects_and_not_copies_of_them(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    hooks.register("e", lambda event, data: seen.append(data["tool"]))
    tool = object()
    await hooks.emit("e", {"tool": tool})
    assert seen[0] is tool


@pytest.mark.parametrize("handled", [False, True])
async def test_a_result_that_passes_is_like_one_made_by_pydantic(hooks: HookRegistry, handled: bool) -> None:
    if handled:
        hooks.register("e", lambda event, data: None)
    result = await hooks.emit("e", {"n": 1})
    made = HookResult(data=dict(result.data or {}))
    assert type(result) is HookResult
    assert result == made
    assert result.model_dump() == made.model_dump()
    assert result.model_fields_set == made.model_fields_set == {"data"}
    assert result.model_dump(exclude_unset=True) == made.model_dump(exclude_unset=True)
    assert result.__dict__.keys() == made.__dict__.keys() == HookResult.model_fields.keys()
    assert HookResult.model_validate_json(result.model_dump_json()) == made
    assert repr(result) == repr(made)


async def test_a_result_that_passes_can_be_copied_and_changed_alone(hooks: HookRegistry) -> None:
    first, second = await hooks.emit("e", {}), await hooks.emit("e", {})
    changed = first.model_copy(update={"action": "deny"}, deep=True)
    first.context_injections.append(object())  # type: ignore[arg-type]
    first.reason = "mine"
    assert (changed.action, changed.context_injections, changed.reason) == ("deny", [], None)
    assert second == HookResult(data={})
    assert (await hooks.emit("e", {})) == HookResult(data={})
