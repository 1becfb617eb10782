"""Every argument of every tool of the project is known to the permissions, or harmless."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.loader import ModuleLoader
from amplifier_core.permissions import Call, PermissionGate, Policy, parse_permissions
from amplifier_foundation.bundle.check import names_of_modules
from amplifier_tool_delegate.tool import new_session_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REACHES = {
    "bash": {"command": ["command"], "cwd": ["read"], "network": ["host"]},
    "delegate": {"agent": ["bundle"]},
    "edit_file": {"file_path": ["write"], "path": ["write"]},
    "edit_notebook": {"file_path": ["write"], "path": ["write"]},
    "emit": {"name": ["event"]},
    "glob": {"path": ["read"]},
    "grep": {"path": ["read"], "files": ["read"]},
    "read_file": {"file_path": ["read"], "path": ["read"]},
    "search": {"path": ["read"], "files": ["read"]},
    "write_file": {"file_path": ["write"], "path": ["write"]},
}
"""What the arguments of a tool reach. A file may be called `path`, too."""
HARMLESS = {
    "bash": "background timeout",
    "bash_kill": "id",
    "bash_output": "id",
    "delegate": "context_depth context_scope context_turns instruction model_role provider_preferences session_id",
    "edit_file": "new_string old_string replace_all",
    "edit_notebook": "cell cell_type mode source",
    "emit": "data",
    "fork": "attempts instruction keep n",
    "glob": "max_results pattern",
    "grep": "ignore_case max_results pattern",
    "issue": "blocked_by description id label labels on operation priority ready reason remove resolution result "
    "status text title type",
    "memory": "id limit operation query tag tags text title",
    "read_file": "limit offset",
    "search": "context fixed ignore_case ignored max_results offset output pattern type",
    "skill": "arguments file name",
    "todo": "action todos",
    "web_fetch": "offset url",
    "write_file": "content",
}

BY_CALL: dict[str, Callable[[str], list[str]]] = {
    "fork": lambda argument: ["read" if argument == "keep" else "bundle"],
    "issue": lambda argument: ["read" if argument == "operation" else "event"],  # each change is one
    "memory": lambda argument: ["read"],
    "skill": lambda argument: ["other"],
    "todo": lambda argument: ["read"],
    "web_fetch": lambda argument: ["host"],
}
"""What a call with this argument reaches, of tools that tell it for the call as a whole."""


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
    (tmp_path / "x").mkdir()
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
                given, expected = {"command": "ls", argument: "x"}, ["command", *expected]
            if name == "issue":
                given = {"operation": "create", argument: "x"}
            if name in BY_CALL:
                expected = BY_CALL[name](argument)
            reached = [access.kind for access in Call.of(name, given, tmp_path, declared).accesses]
            assert sorted(reached) == sorted(expected), (name, argument)
    await coordinator.cleanup()


PLAYED = {
    "bash": {"command": "ls"},
    "delegate": {"instruction": "x"},
    "edit_file": {"old_string": "a", "new_string": "b"},
    "glob": {"pattern": "*"},
    "grep": {"pattern": "x"},
    "write_file": {"content": "x"},
}
"""The other arguments of a call."""
VALUES = {
    "bundle": ("deployer", "deploy*"),
    "command": ("deploy now", "deploy *"),
    "event": ("deploy:now", "deploy:*"),
    "read": ("private/x", "private/**"),
    "write": ("private/x", "private/**"),
}
"""By each kind, a value that a rule is about, and the pattern of that rule."""


@pytest.mark.parametrize(
    ("tool", "argument", "kind"),
    [(tool, name, kind) for tool, names in REACHES.items() for name, [kind] in names.items() if kind in VALUES],
)
async def test_a_rule_holds_for_each_argument_that_reaches_something(
    tool: str, argument: str, kind: str, tmp_path: Path
) -> None:
    coordinator = await mounted(tmp_path)
    (tmp_path / "private" / "x").mkdir(parents=True)
    value, pattern = VALUES[kind]
    rule = f"{tool}({pattern})"
    gate = PermissionGate(Policy([parse_permissions({"deny": [rule]}, "bundle 'x'")]), tmp_path)
    given = {**PLAYED.get(tool, {}), argument: value}
    refused = gate.check({"tool_name": tool, "tool_input": given}, coordinator.get("tools"))
    assert refused is not None
    assert (refused.action, refused.reason) == ("deny", f"not permitted: the rule {rule} of bundle 'x'")
    await coordinator.cleanup()


async def test_the_agent_of_an_earlier_session_is_that_of_the_call(tmp_path: Path) -> None:
    coordinator = await mounted(tmp_path)
    gate = PermissionGate(Policy([parse_permissions({"deny": ["delegate(deploy*)"]}, "bundle 'x'")]), tmp_path)
    session_id = new_session_id("deployer", "talk-1")
    for more in ({}, {"agent": "reviewer"}):
        given = {"instruction": "go on", "session_id": session_id, **more}
        refused = gate.check({"tool_name": "delegate", "tool_input": given}, coordinator.get("tools"))
        assert refused is not None
        assert refused.action == "deny"
    other = {"instruction": "go on", "session_id": new_session_id("reviewer", "talk-1")}
    assert gate.check({"tool_name": "delegate", "tool_input": other}, coordinator.get("tools")) is None
    await coordinator.cleanup()


@pytest.mark.parametrize("path", ["/etc/hostname", "../other/x", "~/x", "out/x"])
@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file", "glob", "grep"])
async def test_what_a_file_tool_would_refuse_is_not_asked_about(tool: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "out").symlink_to(tmp_path)
    coordinator = await mounted(tmp_path / "work")
    tools = coordinator.get("tools")
    allowed = Policy([parse_permissions({"allow": [f"{tool}(/**)"]}, "user settings", is_own=True)])
    argument = "path" if tool in ("glob", "grep") else "file_path"
    given = {**PLAYED.get(tool, {}), argument: path}
    for policy in (Policy(), allowed):
        refused = PermissionGate(policy, tmp_path / "work").check({"tool_name": tool, "tool_input": given}, tools)
        assert refused is not None
        assert refused.action == "deny"
        assert "it is outside of the working folder, and the tool stays inside" in str(refused.reason)
    result = await tools[tool].execute(given)
    assert result.error is not None
    assert result.error["type"] == "OutsideFolder"
    await coordinator.cleanup()
