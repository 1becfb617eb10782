"""Test the tool on the kernel's real coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.events import ALL_EVENTS
from amplifier_core.loader import ModuleLoader
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests
from amplifier_tool_emit import config_schema, mount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core import ToolResult


class TestStructure(ToolStructuralTests):
    """The structure of every tool's module."""


class TestBehavior(ToolBehaviorTests):
    """The behavior of every tool."""


class Emitted(list[tuple[str, dict[str, Any]]]):
    """A recording capability `event.emit`."""

    async def __call__(self, name: str, data: Mapping[str, Any]) -> None:
        self.append((name, dict(data)))


@pytest.fixture
def emitted() -> Emitted:
    return Emitted()


async def call(emitted: Emitted | None, given: Any, config: dict[str, Any] | None = None) -> ToolResult:
    coordinator = ModuleCoordinator(session_id="test")
    await mount(coordinator, config)
    if emitted is not None:  # registered late: it is looked up at the call
        coordinator.register_capability("event.emit", emitted)
    result: ToolResult = await coordinator.get("tools", "emit").execute(given)
    return result


async def test_an_event_is_emitted_and_the_result_names_it(emitted: Emitted) -> None:
    result = await call(emitted, {"name": "work:done", "data": {"n": [1, None, "ä"]}})
    assert (result.success, result.output) == (True, {"emitted": "work:done"})
    assert emitted == [("work:done", {"n": [1, None, "ä"]})]


@pytest.mark.parametrize("data", [{}, {"data": None}, {"data": {}}])
async def test_an_event_may_have_no_data(data: dict[str, Any], emitted: Emitted) -> None:
    await call(emitted, {"name": "done", **data})
    assert emitted == [("done", {})]


async def test_without_the_capability_the_result_says_why() -> None:
    result = await call(None, {"name": "work:done"})
    assert (result.success, result.error) == (
        False,
        {
            "message": "this session has no event router, so nobody would get the event",
            "type": "Unavailable",
        },
    )


async def test_an_emitter_that_fails_is_a_failed_result() -> None:
    class Failing(Emitted):
        async def __call__(self, name: str, data: Mapping[str, Any]) -> None:
            raise OSError("disk full")

    result = await call(Failing(), {"name": "work:done"})
    assert (result.success, result.error) == (
        False,
        {"message": "'work:done' was not emitted: disk full", "type": "OSError"},
    )


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({}, "InvalidInput", "'name' must be"),
        (None, "InvalidInput", "must be an object, not NoneType"),
        ({"name": ""}, "InvalidInput", "'name' must be"),
        ({"name": "a b"}, "InvalidInput", "'name' must be"),
        ({"name": "*"}, "InvalidInput", "'name' must be"),
        ({"name": "x" * 129}, "InvalidInput", "1 to 128"),
        ({"name": "work", "payload": {}}, "InvalidInput", "unknown field 'payload'; known are name, data"),
        ({"name": "work", "data": [1]}, "InvalidInput", "'data' must be an object, not list"),
        ({"name": "work", "data": {"n": float("nan")}}, "InvalidInput", "data.n: nan is not JSON"),
        ({"name": "work", "data": {"n": "\ud800"}}, "InvalidInput", "cannot be stored"),
        ({"name": "work", "data": {"n": "x" * 65_536}}, "TooLarge", "more than the 65536 allowed"),
        ({"name": "trigger:fired"}, "ReservedName", "choose another name"),
        ({"name": "session:anything"}, "ReservedName", "choose another name"),
        ({"name": "operator:acted", "data": {"by": "ann"}}, "ReservedName", "choose another name"),
        ({"name": "transport:lost"}, "ReservedName", "choose another name"),
        ({"name": "issue:created", "data": {"title": "Deploy"}}, "ReservedName", "choose another name"),
        ({"name": "flow:run:completed"}, "ReservedName", "choose another name"),
    ],
)
async def test_what_cannot_be_emitted_is_a_failed_result(given: Any, kind: str, message: str, emitted: Emitted) -> None:
    result = await call(emitted, given)
    assert (result.success, (result.error or {})["type"]) == (False, kind)
    assert message in (result.error or {})["message"]
    assert emitted == []


async def test_a_name_beside_one_of_the_programs_own_is_free(emitted: Emitted) -> None:
    await call(emitted, {"name": "plan:approved"})
    assert emitted == [("plan:approved", {})]


async def test_no_event_of_the_program_itself_can_be_emitted(emitted: Emitted) -> None:
    kinds = {((await call(emitted, {"name": name})).error or {}).get("type") for name in ALL_EVENTS}
    assert (kinds, emitted) == ({"ReservedName"}, [])


@pytest.mark.parametrize("allow", [["work:", "done"], ["work:*", "done*"]])
async def test_the_bundle_says_which_names_may_be_emitted(allow: list[str], emitted: Emitted) -> None:
    for name in ("work:a", "done", "other", "Work:a"):
        await call(emitted, {"name": name}, {"allow": allow})
    assert [name for name, _ in emitted] == ["work:a", "done"]
    refused = await call(emitted, {"name": "other"}, {"allow": allow})
    assert (refused.error or {})["message"] == (
        "'other' is not allowed here; names may begin with: work:, done; "
        "the bundle may add it to `allow` in the config of tool-emit"
    )


async def test_nothing_allowed_is_nothing_emitted_and_a_reserved_name_stays_reserved(emitted: Emitted) -> None:
    await call(emitted, {"name": "work"}, {"allow": []})
    await call(emitted, {"name": "session:end"}, {"allow": ["session:"]})
    assert emitted == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"alow": []}, "alow: unknown key; did you mean 'allow'?"),
        ({"zzz": 1}, "zzz: unknown key; known are allow, max_bytes"),
        ({"allow": "work:"}, "allow: Input should be a valid list"),
        ({"allow": ["*"]}, "allow: '*' is not a prefix of a name; leave out 'allow' for every name"),
        ({"max_bytes": 1}, "max_bytes: Input should be greater than or equal to 2"),
        ({"max_bytes": True}, "max_bytes: Input should be a valid integer"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        await mount(ModuleCoordinator(session_id="test"), config)
    assert str(caught.value) == f"tool-emit: {message}"


def test_the_schema_of_the_configuration_describes_every_key() -> None:
    properties = config_schema()["properties"]
    assert set(properties) == {"allow", "max_bytes"}
    assert all(about["description"] for about in properties.values())


async def test_the_installed_entry_point_mounts_it() -> None:
    coordinator = ModuleCoordinator(session_id="test")
    load = await ModuleLoader().load("tool-emit", {}, coordinator=coordinator)
    await load(coordinator)
    assert coordinator.get("tools", "emit").input_schema["required"] == ["name"]
