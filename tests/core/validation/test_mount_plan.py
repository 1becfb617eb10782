"""Mount plans: what is wrong with them, and where."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core.session import AmplifierSession
from amplifier_core.validation import MountPlanValidationResult, MountPlanValidator

SESSION = {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}}


def with_session(**changes: Any) -> dict[str, Any]:
    return {"session": {**SESSION, **changes}}


def plan(**sections: Any) -> dict[str, Any]:
    return {"session": dict(SESSION), **sections}


VALID = [
    plan(),
    with_session(orchestrator="loop-basic", context="context-simple"),
    {**with_session(orchestrator="loop-basic"), "orchestrator": {"config": {"max_iterations": 3}}, "context": {}},
    with_session(orchestrator={"module": "loop-basic", "source": "git+https://example.org/x", "config": {"a": 1}}),
    plan(providers=[], tools=None, hooks=[{"module": "hooks-x", "config": None, "source": None}]),
    plan(tools=[{"module": "tool-x", "source": {"type": "path", "path": "/x"}, "note": "an entry may hold more"}]),
    plan(providers=[{"module": "provider-x"}, {"module": "provider-x", "instance_id": "second"}]),
    plan(agents={"reviewer": {"tools": []}}, spawn={"exclude_tools": ["tool-x"]}),
    with_session(raw=True, injection_size_limit=None, metadata={"project": "x"}),
]
INVALID: list[tuple[Any, list[str]]] = [
    (None, ["root_type"]),
    ([], ["root_type"]),
    ({}, ["session_present"]),
    ({"session": None}, ["session_type"]),
    ({"session": "loop-basic"}, ["session_type"]),
    ({"session": {}}, ["session_orchestrator_present", "session_context_present"]),
    ({"session": {"orchestrator": "loop-basic"}}, ["session_context_present"]),
    (with_session(orchestrator=None, context=3), ["session.orchestrator_type", "session.context_type"]),
    (with_session(orchestrator="", context=" "), ["session.orchestrator_module_empty", "session.context_module_empty"]),
    (with_session(orchestrator={}), ["session.orchestrator_module_required"]),
    (with_session(orchestrator={"module": None}), ["session.orchestrator_module_type"]),
    (with_session(context={"module": "c", "config": 5}), ["session.context_config_type"]),
    (with_session(context={"module": "c", "source": []}), ["session.context_source_type"]),
    (plan(orchestrator=[]), ["orchestrator_type"]),
    (plan(context={"config": []}), ["context_config_type"]),
    (plan(providers={}), ["providers_type"]),
    (plan(tools=()), ["tools_type"]),
    (plan(hooks="hooks-x"), ["hooks_type"]),
    (plan(tools=["tool-x"]), ["tools[0]_type"]),
    (plan(tools=[{"module": "tool-x"}, {}]), ["tools[1]_module_required"]),
    (plan(hooks=[{"module": 5}]), ["hooks[0]_module_type"]),
    (plan(hooks=[{"module": ""}]), ["hooks[0]_module_empty"]),
    (plan(providers=[{"module": "p", "config": "x"}]), ["providers[0]_config_type"]),
    (plan(providers=[{"module": "p", "source": 1}]), ["providers[0]_source_type"]),
    (plan(providers=[{"module": "p", "config": []}, None]), ["providers[0]_config_type", "providers[1]_type"]),
    (plan(providers=[{"module": "p"}, {"module": "p"}]), ["providers_instance_id"]),
]  # fmt: skip


def validate(mount_plan: Any) -> MountPlanValidationResult:
    return MountPlanValidator().validate(mount_plan)


@pytest.mark.parametrize("mount_plan", VALID, ids=str)
def test_a_plan_that_a_session_takes_passes(mount_plan: dict[str, Any]) -> None:
    result = validate(mount_plan)
    assert (result.errors, result.warnings, result.passed) == ([], [], True)
    assert result.format_errors() == "No errors"
    assert AmplifierSession(mount_plan).config == mount_plan


@pytest.mark.parametrize(("mount_plan", "checks"), INVALID, ids=lambda value: str(value)[:60])
def test_what_is_wrong_with_a_plan_is_named(mount_plan: Any, checks: list[str]) -> None:
    result = validate(mount_plan)
    assert [check.name for check in result.errors] == checks
    assert not result.passed
    for number, name in enumerate(checks, 1):
        assert f"{number}. [{name}] " in result.format_errors()


def test_the_checks_that_passed_name_every_module() -> None:
    result = validate(plan(tools=[{"module": "tool-x"}, {"module": "tool-y"}]))
    assert [(check.name, check.passed, check.severity) for check in result.checks] == [
        (name, True, "info")
        for name in (
            "root_type",
            "session_present",
            "session.orchestrator_module_valid",
            "session.context_module_valid",
            "tools[0]_module_valid",
            "tools[1]_module_valid",
        )
    ]
    assert result.summary() == "PASSED: 6/6 checks passed (0 errors, 0 warnings)"


def test_a_section_that_no_session_reads_is_warned_of() -> None:
    result = validate(plan(tool=[], agent={}))
    assert (result.passed, [check.name for check in result.warnings]) == (True, ["unknown_sections"])
    assert "agent, tool" in result.warnings[0].message


def test_the_message_says_what_was_found_and_what_should_be_there() -> None:
    messages = [check.message for check in validate(plan(tools=[{"id": "x"}, {"module": 5}], hooks={})).errors]
    assert messages == [
        "'module' is missing in tools[0], there is only id; write {'module': 'tool-…'}",
        "the module of tools[1] must be a string, not int",
        "hooks must be a list of modules, not dict",
    ]
