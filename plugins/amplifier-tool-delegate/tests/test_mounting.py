"""Test the contract of tools, and the checks of configuration and input."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.loader import ModuleLoader
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests
from amplifier_tool_delegate import config_schema
from amplifier_tool_delegate.config import DelegateConfig, read_config
from amplifier_tool_delegate.reporting import EVENTS

if TYPE_CHECKING:
    from .conftest import Program

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


class TestBehavior(ToolBehaviorTests):
    example_input: ClassVar[dict[str, Any]] = {"agent": "self", "instruction": "Look."}


class TestStructure(ToolStructuralTests):
    pass


async def test_the_installed_entry_point_mounts_it_and_announces_its_events() -> None:
    coordinator = ModuleCoordinator(session_id="s")
    load = await ModuleLoader().load("tool-delegate", {"timeout": 60}, coordinator=coordinator)
    await load(coordinator)
    assert coordinator.get("tools", "delegate").name == "delegate"
    assert await coordinator.collect_contributions("observability.events") == [list(EVENTS)]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"agent": []}, "agent: unknown key; did you mean 'agents'?"),
        ({"zzz": 1}, f"zzz: unknown key; known are {', '.join(DelegateConfig.model_fields)}"),
        ({1: 1}, "1: Keys should be strings"),
        ({"agents": "some"}, "agents: Input should be a valid list"),
        ({"agents": [""]}, "agents[0]: String should have at least 1 character"),
        ({"exclude_tools": "tool-bash"}, "exclude_tools: Input should be a valid list"),
        ({"inherit_hooks": [1]}, "inherit_hooks[0]: Input should be a valid string"),
        ({"bundles": "no"}, "bundles: Input should be a valid boolean"),
        ({"uris": 1}, "uris: Input should be a valid boolean"),
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"timeout": True}, "timeout: Input should be a valid number"),
        ({"timeout": float("nan")}, "timeout: Input should be a finite number"),
        ({"settings": {"timeout": "1 h"}}, "settings.timeout: Input should be a valid number"),
        ({"max_self_depth": -1}, "max_self_depth: Input should be greater than or equal to 0"),
        ({"max_self_depth": 1.5}, "max_self_depth: Input should be a valid integer"),
        ({"settings": []}, None),
        ({"settings": [1]}, "settings: must be a mapping"),
        ({"features": "all"}, "features: must be a mapping"),
        ({"features": {"session_resume": True}}, "features.session_resume: must be a mapping"),
        (
            {"features": {"session_resume": {"enabled": 0}}},
            "features.session_resume.enabled: Input should be a valid boolean",
        ),
        (
            {"features": {"context_inheritance": {"max_turns": 0}}},
            "features.context_inheritance.max_turns: Input should be greater than or equal to 1",
        ),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: dict[str, Any], message: str | None) -> None:
    message = message or "settings: must be a mapping"
    with pytest.raises(ValueError) as caught:
        read_config(config)
    assert str(caught.value).startswith(f"tool-delegate: {message}")


def test_settings_of_other_programs_count_where_they_are_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    nested = {"exclude_tools": ["tool-delegate"], "timeout": 300, "retries": 2}
    features = {"context_inheritance": {"enabled": True, "max_turns": 3, "deep": 1}, "telepathy": {}}
    config = read_config({"settings": nested, "features": features, "timeout": 60})
    assert (config.inheritance("tools"), config.timeout) == ({"exclude_tools": ["tool-delegate"]}, 60)
    assert config.features.context_inheritance.max_turns == 3
    assert caplog.messages == [
        "tool-delegate: settings: not known here, left out: retries",
        "tool-delegate: features: not known here, left out: telepathy",
        "tool-delegate: features.context_inheritance: not known here, left out: deep",
    ]


def test_a_list_of_agents_turns_bundles_off_unless_they_are_asked_for() -> None:
    assert [read_config(config).allows_bundles for config in ({}, {"agents": "all"}, {"agents": ["a"]})] == [
        True,
        True,
        False,
    ]
    assert read_config({"agents": ["a"], "bundles": True}).allows_bundles


@pytest.mark.parametrize(
    ("feature", "gone"),
    [
        ("session_resume", {"session_id"}),
        ("context_inheritance", {"context_depth", "context_scope", "context_turns"}),
        ("provider_selection", {"provider_preferences", "model_role"}),
        ("provider_preferences", {"provider_preferences", "model_role"}),
    ],
)
async def test_what_is_off_is_not_in_the_schema_and_is_refused(program: Program, feature: str, gone: set[str]) -> None:
    everything = set((await program.tool()).input_schema["properties"])
    config = {"features": {feature: {"enabled": False}}}
    assert everything - set((await program.tool(**config)).input_schema["properties"]) == gone
    for name in gone:
        kind, message = await program.failure(config, agent="reviewer", **{name: "x"})
        assert (kind, message.startswith(f"unknown field '{name}'")) == ("InvalidInput", True)


async def test_turns_are_bounded_where_a_bundle_bounds_them(program: Program) -> None:
    config = {"features": {"context_inheritance": {"max_turns": 3}}}
    await program.call(config, agent="reviewer", context_depth="recent")
    assert program.asked[0]["context_turns"] == 3
    assert await program.failure(config, agent="reviewer", context_turns=4) == (
        "InvalidInput",
        "'context_turns' must be a number from 1 to 3, not 4",
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "the input must be an object, not NoneType"),
        (["a"], "the input must be an object, not list"),
        ({}, "'instruction' is missing or empty; write the task of the agent"),
        ({"agent": "reviewer", "instruction": " \n"}, "'instruction' is missing or empty; write the task of the agent"),
        ({"agent": "reviewer", "instruction": 5}, "'instruction' must be of type string, not int"),
        (
            {"instruction": "x"},
            "'agent' is missing; name one of reviewer, lib:bug-hunter, self, or the 'session_id' of an earlier call",
        ),
        ({"instruction": "x", "agnet": "a"}, "unknown field 'agnet'; did you mean 'agent'?"),
        ({"instruction": "x", 1: "a"}, "unknown field '1'; known are agent, instruction, session_id"),
        ({"instruction": "x", "context_depth": "deep"}, "'context_depth' must be one of none, recent, all, not 'deep'"),
        ({"instruction": "x", "context_turns": 0}, "'context_turns' must be a number from 1 on, not 0"),
        ({"instruction": "x", "context_turns": True}, "'context_turns' must be of type integer, not bool"),
        ({"instruction": "x", "provider_preferences": {}}, "'provider_preferences' must be of type array, not dict"),
        (
            {"instruction": "x", "provider_preferences": [{"provider": "a"}, {"model": "b"}]},
            "'provider_preferences[1]' must be an object with a 'provider' and perhaps a 'model', both texts",
        ),
        ({"instruction": "x", "provider_preferences": ["a"]}, "'provider_preferences[0]' must be an object"),
        (
            {"instruction": "x", "provider_preferences": [{"provider": 1}]},
            "'provider_preferences[0]' must be an object",
        ),
    ],
)
async def test_input_that_does_not_fit_the_schema_is_a_failed_result(
    program: Program, given: Any, message: str
) -> None:
    result = await (await program.tool()).execute(given)
    assert result.error is not None
    assert (result.success, result.error["type"]) == (False, "InvalidInput")
    assert result.error["message"].startswith(message)
    assert (program.asked, program.events) == ([], [])


async def test_what_a_model_leaves_empty_counts_as_left_out(program: Program) -> None:
    empty = {
        "session_id": "",
        "context_depth": None,
        "context_turns": None,
        "provider_preferences": [],
        "model_role": "",
    }
    assert (await program.call(agent="reviewer", **empty)).success
    [asked] = program.asked
    assert (asked["context_depth"], asked["context_turns"], asked["provider_preferences"]) == ("none", 5, None)


def test_the_schema_of_the_configuration_describes_every_key() -> None:
    properties = config_schema()["properties"]
    assert set(properties) == set(DelegateConfig.model_fields)
    assert all(about["description"] for about in properties.values())


@pytest.mark.parametrize("empty", [{"features": None}, {"settings": None}, {"agents": None}])
def test_an_empty_key_counts_as_left_out(empty: dict[str, Any]) -> None:
    assert read_config(empty) == read_config({key: value for key, value in empty.items() if key == "agents"})


async def test_the_schema_is_json_that_allows_nothing_it_does_not_name(program: Program) -> None:
    schema = json.loads(json.dumps((await program.tool()).input_schema))
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) <= set(schema["properties"])


async def test_the_readme_names_every_key_input_and_event(program: Program) -> None:
    rows = [re.findall(r"`([a-z_]+)`", row.split("|")[1]) for row in README.splitlines() if row.startswith("| `")]
    inputs = set((await program.tool()).input_schema["properties"])
    named = {name for row in rows for name in row}
    assert named == {*DelegateConfig.model_fields, *inputs}
    assert {event for event in EVENTS if f"`{event}`" in README} == set(EVENTS)
