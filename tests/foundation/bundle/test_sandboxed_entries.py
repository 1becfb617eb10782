"""The key `sandbox` of a tool in a bundle: where it may stand, and that nothing takes it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.validation import MountPlanValidator
from amplifier_foundation.bundle import Bundle, BundleProblemsError, check_bundle, load_bundle_sync
from amplifier_foundation.bundle.json_schema import bundle_schema
from amplifier_foundation.bundle.merge import merge_module_lists
from amplifier_foundation.isolation.jobs import Job
from amplifier_foundation.isolation.runner import _packages_of
from amplifier_foundation.spawning.inheritance import child_config

ENTRY = {"module": "tool-x", "sandbox": True}


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("providers: [{module: provider-playbook, sandbox: true}]", "providers[0].sandbox"),
        ("hooks: [{module: hooks-logging, sandbox: true}]", "hooks[0].sandbox"),
        ("session: {orchestrator: {module: loop-basic, sandbox: true}}", "session.orchestrator.sandbox"),
        ("session: {context: {module: context-simple, sandbox: true}}", "session.context.sandbox"),
        ("agents: {a: {hooks: [{module: hooks-logging, sandbox: true}]}}", "agents.a.hooks[0].sandbox"),
    ],
)
def test_nothing_but_a_tool_runs_in_a_sandbox(section: str, path: str, write: Any) -> None:
    with pytest.raises(BundleProblemsError) as caught:
        load_bundle_sync(write(f"{section}\n"))
    assert f"{path}: unknown key; tools alone run in a sandbox" in str(caught.value)


def test_it_is_true_or_false(write: Any) -> None:
    with pytest.raises(BundleProblemsError, match=r"tools\[0\].sandbox: must be true or false, not text"):
        load_bundle_sync(write("tools: [{module: tool-x, sandbox: 'on'}]\n"))


def test_a_tool_and_the_tool_of_an_agent_may_have_it(write: Any, folder: Path) -> None:
    bundle = load_bundle_sync(
        write("tools: [{module: tool-x, sandbox: true}]\nagents: {a: {tools: [{module: tool-y, sandbox: true}]}}\n")
    )
    assert bundle.tools == [ENTRY]
    assert bundle.agents["a"]["tools"] == [{"module": "tool-y", "sandbox": True}]
    assert bundle.to_mount_plan()["tools"] == [ENTRY]


def test_no_bundle_takes_it_back() -> None:
    later = [{"module": "tool-x", "sandbox": False, "config": {"a": 1}}]
    assert merge_module_lists([ENTRY], later) == [{**ENTRY, "config": {"a": 1}}]
    assert merge_module_lists(later, [ENTRY]) == [{**ENTRY, "config": {"a": 1}}]
    assert Bundle(name="a", tools=[ENTRY]).compose(Bundle(name="b", tools=later)).tools[0]["sandbox"] is True


def test_an_agent_inherits_it_whatever_its_own_entry_says() -> None:
    own = {"tools": [{"module": "tool-x", "sandbox": False, "source": "./mine.py"}]}
    config = child_config(own, {"tools": [ENTRY]}, providers=True, tools=True, hooks=True)
    assert config["tools"] == [{**ENTRY, "source": "./mine.py"}]


async def test_without_a_package_with_a_sandbox_it_is_an_error(write: Any) -> None:
    path = write("tools: [{module: tool-filesystem, sandbox: true}, {module: tool-bash}]\n")
    [problem] = await check_bundle(path, load_plugins(environ={"AMPLIFIER_BLOCK_PLUGINS": "sandbox"}))
    assert problem.code == "AMP110"
    assert str(problem).endswith("no package offers one. Install it with: pip install amplifier-sandbox")


async def test_its_configuration_is_not_checked_by_its_own_code(write: Any) -> None:
    path = write("tools: [{module: tool-filesystem, sandbox: true, config: {allow_writ: 5}}]\n")
    assert [each.code for each in await check_bundle(path, load_plugins(environ={}))] == []


def test_its_package_is_not_imported_for_later_sessions_either() -> None:
    plan = {"session": {}, "tools": [{"module": "tool-filesystem"}, {"module": "tool-bash", "sandbox": True}]}
    from amplifier_core.hook_data import SpawnRequest

    job = Job(SpawnRequest("s", "", "b", "Go", plan, ""))
    assert list(_packages_of(job)) == ["amplifier_tool_filesystem"]


@pytest.mark.parametrize(
    ("plan", "check"),
    [
        ({"hooks": [ENTRY]}, "hooks[0]_sandbox_kind"),
        ({"session": {"orchestrator": ENTRY, "context": "c"}}, "session.orchestrator_sandbox_kind"),
        ({"tools": [{"module": "tool-x", "sandbox": "yes"}]}, "tools[0]_sandbox_type"),
        ({"tools": [ENTRY]}, None),
    ],
)
def test_a_mount_plan_is_checked_for_it(plan: dict[str, Any], check: str | None) -> None:
    whole = {"session": {"orchestrator": "o", "context": "c"}, **plan}
    errors = [each.name for each in MountPlanValidator().validate(whole).errors]
    assert errors == ([check] if check else [])


def test_the_schema_describes_it_for_tools_alone() -> None:
    kinds = bundle_schema()["$defs"]
    assert kinds["ToolEntry"]["properties"]["sandbox"]["description"].startswith("Runs its tools in a sandbox")
    assert (
        kinds["ToolEntry"]["properties"]["source"]["description"]
        == kinds["ModuleEntry"]["properties"]["source"]["description"]
    )
    assert "sandbox" not in kinds["ModuleEntry"]["properties"]
