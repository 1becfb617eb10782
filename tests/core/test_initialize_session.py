"""A plan that is mounted on a coordinator without a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.session import initialize_session

if TYPE_CHECKING:
    from tests.core.conftest import LocalModules

Plan = dict[str, Any]


@pytest.fixture
def plan() -> Plan:
    return {
        "session": {"orchestrator": "loop-echo", "context": "context-foreign"},
        "providers": [{"module": "provider-echo", "instance_id": "first"}],
        "tools": [{"module": "tool-broken"}],
        "hooks": [{"module": "hooks-recorder"}],
    }


@pytest.fixture
def coordinator(modules: LocalModules) -> ModuleCoordinator:
    modules.mounts["tool-broken"] = modules.failing(OSError("no disk"))
    coordinator = ModuleCoordinator(session_id="s", parent_id="p")
    coordinator.hooks.set_default_fields(session_id="s", parent_id="p")
    coordinator.loader = modules
    return coordinator


async def test_what_is_planned_is_mounted_and_what_could_not_be_is_told(
    plan: Plan, modules: LocalModules, coordinator: ModuleCoordinator
) -> None:
    await initialize_session(plan, coordinator, "s", "p")
    assert coordinator.get("orchestrator") is not None
    assert list(coordinator.get("providers")) == ["first"]
    assert modules.names_seen() == ["module:load_failed", "session:fork"]
    [failure] = modules.data_of("module:load_failed")
    assert failure["error"].startswith("OSError: no disk (")
    [fork] = modules.data_of("session:fork")
    assert (fork["parent"], fork["parent_id"], fork["session_id"]) == ("p", "p", "s")


async def test_a_session_without_a_parent_is_no_fork(
    plan: Plan, modules: LocalModules, coordinator: ModuleCoordinator
) -> None:
    await initialize_session(plan, coordinator, "s", None)
    assert modules.names_seen() == ["module:load_failed"]


async def test_the_coordinator_s_end_undoes_the_mounts(
    plan: Plan, modules: LocalModules, coordinator: ModuleCoordinator
) -> None:
    await initialize_session(plan, coordinator, "s", None)
    await coordinator.cleanup()
    assert modules.undone == ["orchestrator"]


async def test_a_coordinator_without_a_loader_finds_what_is_installed(plan: Plan) -> None:
    with pytest.raises(RuntimeError, match="Cannot initialize without orchestrator: unknown module 'loop-echo'"):
        await initialize_session(plan, ModuleCoordinator(), "s", None)
