"""Every argument of every tool of the project is known to the permissions, or harmless."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.loader import ModuleLoader
from amplifier_core.permissions import Call, PermissionGate, Policy, parse_permissions
from amplifier_foundation.bundle.check import names_of_modules

if TYPE_CHECKING:
    from pathlib import Path

REACHES = {
    "bash": {"command": ["command"], "network": ["host"]},
    "delegate": {"agent": ["bundle"]},
    "edit_file": {"file_path": ["write"], "path": ["write"]},
    "emit": {"name": ["event"]},
    "glob": {"path": ["read"]},
    "grep": {"path": ["read"], "files": ["read"]},
    "read_file": {"file_path": ["read"], "path": ["read"]},
    "write_file": {"file_path": ["write"], "path": ["write"]},
}
"""What the arguments of a tool reach. A file may be called `path`, too."""
HARMLESS = {
    "bash": "background cwd timeout",  # the folder counts in the paths of the command
    "bash_kill": "id",
    "bash_output": "id",
    "delegate": "context_depth context_scope context_turns instruction model_role provider_preferences session_id",
    "edit_file": "new_string old_string replace_all",
    "emit": "data",
    "glob": "max_results pattern",
    "grep": "ignore_case max_results pattern",
    "read_file": "limit offset",
    "write_file": "content",
}


async def mounted(folder: Path) -> ModuleCoordinator:
    """Return a coordinator with all installed tools."""
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(folder))
    for module in sorted(names_of_modules()):
        if module.startswith("tool-"):
            await (await ModuleLoader().load(module, {}))(coordinator)
    return coordinator


async def test_every_argument_of_a_tool_reaches_what_is_known_or_nothing(tmp_path: Path) -> None:
    coordinator = await mounted(tmp_path)
    tools = coordinator.get("tools")
    assert sorted(tools) == sorted(HARMLESS)
    for name, tool in tools.items():
        known = {*REACHES.get(name, {}), *HARMLESS[name].split()}
        assert tool.input_schema["properties"].keys() <= known, name
        declared = getattr(tool, "accesses", None)
        for argument in known:
            given: dict[str, Any] = {argument: "x"}
            expected = REACHES.get(name, {}).get(argument, [])
            if name == "bash" and argument != "command":
                given, expected = {"command": "ls", argument: "."}, ["command", *expected]
            reached = [access.kind for access in Call.of(name, given, tmp_path, declared).accesses]
            assert sorted(reached) == sorted(expected), (name, argument)
    await coordinator.cleanup()


@pytest.mark.parametrize(
    ("rule", "tool", "given"),
    [
        ("emit(deploy:*)", "emit", {"name": "deploy:now"}),
        ("delegate(deploy*)", "delegate", {"agent": "deployer", "instruction": "x"}),
        ("read_file(private/**)", "read_file", {"path": "private/x"}),
        ("grep(private/**)", "grep", {"pattern": "x", "path": "private"}),
        ("edit_file(private/**)", "edit_file", {"file_path": "private/x", "old_string": "a", "new_string": "b"}),
    ],
)
async def test_a_rule_holds_for_the_real_call(rule: str, tool: str, given: dict[str, Any], tmp_path: Path) -> None:
    coordinator = await mounted(tmp_path)
    gate = PermissionGate(Policy([parse_permissions({"deny": [rule]}, "bundle 'x'")]), tmp_path)
    refused = gate.check({"tool_name": tool, "tool_input": given}, coordinator.get("tools"))
    assert refused is not None
    assert (refused.action, refused.reason) == ("deny", f"not permitted: the rule {rule} of bundle 'x'")
    await coordinator.cleanup()
