"""Test the rules on a kernel, or in a session, without permissions; and the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.validation.behavioral import HookBehaviorTests
from amplifier_core.validation.structural import HookStructuralTests
from amplifier_hooks_approval import check_config, config_schema, mount


class TestBehavior(HookBehaviorTests):
    pass


class TestStructure(HookStructuralTests):
    pass


class OldCoordinator:
    """The parts of a coordinator that a kernel without permissions has."""

    def __init__(self) -> None:
        whole = ModuleCoordinator(session_id="s")
        self.hooks, self.get_capability, self.session_id = whole.hooks, whole.get_capability, "s"
        self.register_capability, self.approval_system = whole.register_capability, None


async def ask(config: dict[str, Any], tool: str, given: Any, coordinator: Any = None) -> Any:
    coordinator = coordinator or ModuleCoordinator(session_id="s")
    await mount(coordinator, config)
    return await coordinator.hooks.emit("tool:pre", {"tool_name": tool, "tool_input": given})


@pytest.mark.parametrize(
    ("config", "tool", "given", "action"),
    [
        ({}, "bash", {"command": "make"}, "ask_user"),
        ({}, "bash", {"command": "ls -l"}, "continue"),
        ({}, "bash", {"command": "ls; rm x"}, "ask_user"),
        ({}, "bash", {"command": "echo $(rm x)"}, "ask_user"),
        ({}, "bash", {"command": "echo a\nrm x"}, "ask_user"),
        ({}, "write_file", {"file_path": "a"}, "ask_user"),
        ({}, "read_file", {"file_path": "a"}, "continue"),
        ({"rules": [{"pattern": "rm *", "action": "auto_deny"}]}, "bash", {"command": "ls; rm x"}, "deny"),
        ({"rules": [{"pattern": "rm *", "action": "auto_deny"}]}, "bash", {"command": "true &&rm x"}, "deny"),
        ({"rules": [{"tool": "b*", "action": "auto_deny"}]}, "bash", {"command": "ls"}, "deny"),
        ({"patterns": ["DROP TABLE"], "rules": []}, "bash", {"command": "psql -c 'DROP TABLE x'"}, "ask_user"),
        ({}, "bash", "rm x", "deny"),
        ({}, "bash", None, "deny"),
        ({"rules": [{"pattern": r"a\*", "action": "deny"}]}, "bash", {"command": "ab"}, "ask_user"),
        ({"rules": [{"pattern": r"a\*", "action": "deny"}]}, "bash", {"command": "a*"}, "deny"),
    ],
)
@pytest.mark.parametrize("kernel", [ModuleCoordinator, OldCoordinator])
async def test_without_permissions_the_module_asks_by_itself(
    kernel: Any, config: dict[str, Any], tool: str, given: Any, action: str
) -> None:
    coordinator = kernel(session_id="s") if kernel is ModuleCoordinator else kernel()
    assert (await ask(config, tool, given, coordinator)).action == action


async def test_an_unanswered_question_denies_unless_the_bundle_says_otherwise() -> None:
    asked = await ask({"timeout": 20}, "bash", {"command": "make"})
    assert (asked.approval_default, asked.approval_timeout) == ("deny", 20)
    asked = await ask({"default_action": "continue"}, "bash", {"command": "make"})
    assert asked.approval_default == "allow"


async def test_an_old_kernel_is_told_of_the_question() -> None:
    coordinator: Any = OldCoordinator()
    told: list[Any] = []
    coordinator.hooks.register("approval:required", lambda event, data: told.append(data["tool_name"]))
    await ask({}, "bash", {"command": "make"}, coordinator)
    assert told == ["bash"]


async def test_a_policy_module_that_fails_denies() -> None:
    coordinator = ModuleCoordinator(session_id="s")

    def fail(name: str) -> bool:
        raise RuntimeError("broken")

    coordinator.register_capability("approval.needs_check", fail)
    assert (await ask({}, "read_file", {}, coordinator)).action == "deny"


async def test_a_pattern_with_many_stars_takes_no_time_that_grows_fast() -> None:
    config = {"rules": [{"pattern": "*a" * 30 + "b*", "action": "deny"}]}
    asked = await ask(config, "bash", {"command": "a" * 200_000})  # backtracking would take years
    assert asked.action == "ask_user"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rule": []}, "rule: unknown key; did you mean 'rules'?"),
        ({"tools": "x"}, "tools: Input should be a valid list"),
        ({"tools": [1]}, "tools.0: Input should be a valid string"),
        ({"tools": {"bash": {"require": True}}}, "tools.bash.require: unknown key; did you mean 'require_approval'?"),
        (
            {"rules": [{"patern": "x", "action": "ask"}]},
            "rules.0.patern: unknown key; did you mean 'pattern'?",
        ),
        (
            {"rules": [{"pattern": "x", "action": "approve"}]},
            "rules.0.action: Input should be 'auto_approve', 'allow', 'ask', 'auto_deny' or 'deny'",
        ),
        ({"rules": [{"action": "ask"}]}, "rules: rule 0 names neither a 'tool' nor a 'pattern'"),
        (
            {"rules": [{"tool": "bash"}]},
            "rules: rule 0 has no 'action'; known are auto_approve, allow, ask, auto_deny, deny",
        ),
        ({"rules": [{"tool": "bash(", "action": "ask"}]}, "rules.0.tool: String should match pattern '^[\\w.*-]+$'"),
        ({"default_action": "allow"}, "default_action: Input should be 'deny' or 'continue'"),
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"audit": {"path": "x"}}, "audit.path: unknown key; known are enabled, file"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_with_its_key(config: dict[str, Any], message: str) -> None:
    coordinator = ModuleCoordinator(session_id="s")
    with pytest.raises(ValueError) as refused:
        await mount(coordinator, config)
    assert str(refused.value) == f"hooks-approval: {message}"
    assert coordinator.hooks.list_handlers() == {}


def test_the_schema_names_every_key() -> None:
    check_config({})
    assert "rules" in config_schema()["properties"]
