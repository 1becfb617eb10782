"""Test the contract of hook modules by its suites, and the configuration."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.validation.behavioral import HookBehaviorTests
from amplifier_core.validation.structural import HookStructuralTests
from amplifier_hooks_shell import check_config, config_schema, mount
from amplifier_hooks_shell.names import match_tool


class TestBehavior(HookBehaviorTests):
    pass


class TestStructure(HookStructuralTests):
    pass


def one(**command: Any) -> dict[str, Any]:
    return {"hooks": {"PreToolUse": [{"hooks": [{"command": "true", **command}]}]}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hook": {}}, "hook: unknown key; did you mean 'hooks'?"),
        ({"hooks": {"PreTool": []}}, "hooks: unknown event 'PreTool'; did you mean 'PreToolUse'?"),
        (
            {"hooks": {"Stop": [{"hooks": [], "match": "x"}]}},
            "hooks.Stop.0.match: unknown key; did you mean 'matcher'?",
        ),
        (one(timeot=1), "hooks.PreToolUse.0.hooks.0.timeot: unknown key; did you mean 'timeout'?"),
        (one(timeout=0), "hooks.PreToolUse.0.hooks.0.timeout: Input should be greater than 0"),
        (one(type="prompt"), "hooks.PreToolUse.0.hooks.0.type: Input should be 'command'"),
        (one(on_error="allow"), "hooks.PreToolUse.0.hooks.0.on_error: Input should be 'deny' or 'continue'"),
        (one(command=""), "hooks.PreToolUse.0.hooks.0.command: String should have at least 1 character"),
        (
            {"hooks": {"PreToolUse": [{"matcher": "(", "hooks": []}]}},
            "hooks.PreToolUse.0.matcher: '(' is not a regular expression: missing ), unterminated subpattern at"
            " position 0",
        ),
        ({"hooks": []}, "hooks: Input should be a valid dictionary"),
        ({"max_stop_blocks": -1}, "max_stop_blocks: Input should be greater than or equal to 0"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_with_its_key(config: dict[str, Any], message: str) -> None:
    coordinator = ModuleCoordinator(session_id="s")
    with pytest.raises(ValueError) as refused:
        await mount(coordinator, config)
    assert str(refused.value) == f"hooks-shell: {message}"
    assert coordinator.hooks.list_handlers() == {}


def test_the_schema_names_every_key() -> None:
    check_config({})
    assert list(config_schema()["properties"]) == [
        "hooks",
        "on_error",
        "max_stop_blocks",
        "pass_environment",
    ]


async def test_a_session_hears_what_has_commands_alone() -> None:
    coordinator = ModuleCoordinator(session_id="s")
    cleanup = await mount(coordinator, {"hooks": {"PreCompact": [{"hooks": [{"command": "true"}]}]}})
    assert sorted(coordinator.hooks.list_handlers()) == ["context:pre_compact", "prompt:submit", "provider:request"]
    assert cleanup is not None
    await cleanup()
    assert coordinator.hooks.list_handlers() == {}


def test_a_name_that_is_no_tool_s_fits_every_pattern() -> None:
    assert match_tool("Read", "x" * 5000) == "x" * 5000


async def test_a_kernel_without_the_search_for_scripts_runs_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amplifier_core.utils.scripts", None)
    monkeypatch.setitem(sys.modules, "amplifier_core.utils.secrets", None)
    coordinator = ModuleCoordinator(session_id="s")
    cleanup = await mount(coordinator, {"hooks": {"PreToolUse": [{"hooks": [{"command": "exit 2"}]}]}})
    result = await coordinator.hooks.emit("tool:pre", {"tool_name": "bash", "tool_input": {}})
    assert (result.action, result.reason) == ("deny", "'exit 2' ended with the exit code 2")
    assert cleanup is not None
    await cleanup()
