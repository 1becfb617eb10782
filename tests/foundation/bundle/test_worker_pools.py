"""The pools of workers of a foreman: another spelling of background sessions that do issues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.bundle import check_bundle, load_bundle_sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_foundation.bundle.background_config import BackgroundSessionConfig

CODING = "{name: coding, worker_bundle: ./worker.md, max_concurrent: 3, route_types: [feature]}"
TESTING = "{name: testing, worker_bundle: ./worker.md, route_types: [test]}"


@pytest.fixture
def declare(write: Callable[..., Path]) -> Callable[[str], Path]:
    """Write a bundle whose orchestrator has this config, and its worker."""

    def declare(config: str) -> Path:
        write("providers: [{module: provider-playbook}]\n", name="worker.md", bundle="worker")
        orchestrator = f"{{orchestrator: {{module: orchestrator-foreman, config: {config}}}}}"
        return write(f"providers: [{{module: provider-playbook}}]\nsession: {orchestrator}\n")

    return declare


def triggers(found: list[BackgroundSessionConfig]) -> dict[str, Any]:
    """Return the config of the trigger of each background session."""
    assert {each.triggers[0].module for each in found} <= {"trigger-issue"}
    return {each.name: each.triggers[0].config for each in found}


def test_a_pool_is_a_background_session_that_does_issues_in_worktrees(declare: Any, folder: Path) -> None:
    bundle = load_bundle_sync(declare(f"{{worker_pools: [{CODING}]}}"))
    [pool] = bundle.background_sessions
    assert (pool.name, pool.bundle, pool.pool_size, pool.runner) == (
        "coding",
        str(folder / "worker.md"),
        3,
        "subprocess",
    )
    assert pool.tracker is not None
    assert pool.worktree is not None
    assert (pool.tracker.name, pool.worktree.finish) == ("issue", "branch")
    assert (pool.on_complete_emit, pool.on_error_emit) == ("work:completed", "work:failed")
    assert "{title}" in (pool.instruction_template or "")


def test_other_keys_of_a_background_session_are_taken_and_unknown_ones_are_for_others(declare: Any) -> None:
    keys = "timeout: 60, worktree: merge, colour: blue, tracker: {name: issue, config: {reopen: 0}}"
    pool = f"{{name: a, worker_bundle: ./worker.md, {keys}}}"
    [found] = load_bundle_sync(declare(f"{{worker_pools: [{pool}]}}")).background_sessions
    assert found.worktree is not None
    assert found.tracker is not None
    assert (found.timeout, found.worktree.finish, found.tracker.config) == (60.0, "merge", {"reopen": 0})


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (f"{{worker_pools: [{CODING}]}}", {"coding": {"except_types": []}}),
        (
            f"{{worker_pools: [{CODING}, {TESTING}]}}",
            {"coding": {"types": ["feature"]}, "testing": {"types": ["test"]}},
        ),
        (
            f"{{worker_pools: [{CODING}, {TESTING}], routing: {{default_pool: testing}}}}",
            {"coding": {"types": ["feature"]}, "testing": {"except_types": ["feature"]}},
        ),
        (
            f"{{worker_pools: [{CODING}, {TESTING}], "
            "routing: {rules: [{if_metadata_type: bug, then_pool: coding}, "
            "{if_metadata_type: [bug], then_pool: coding}]}}",
            {"coding": {"types": ["bug", "feature"]}, "testing": {"types": ["test"]}},
        ),
        (
            "{worker_pools: [{name: all, worker_bundle: ./worker.md}, {name: none, worker_bundle: ./worker.md}], "
            "routing: {default_pool: all}}",
            {"all": {"except_types": []}},
        ),
    ],
)
async def test_each_issue_goes_to_the_pool_of_its_type(config: str, expected: dict[str, Any], declare: Any) -> None:
    path = declare(config)
    assert triggers(load_bundle_sync(path).background_sessions) == expected
    assert await check_bundle(path, load_plugins(environ={})) == []


def test_pools_stand_beside_background_sessions_of_the_same_config(declare: Any) -> None:
    bundle = load_bundle_sync(
        declare(f"{{worker_pools: [{CODING}], background_sessions: [{{name: own, instruction: x}}]}}")
    )
    assert [each.name for each in bundle.background_sessions] == ["own", "coding"]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            "{worker_pools: 5}",
            "4:79: error[AMP103] session.orchestrator.config.worker_pools: must be a list, not a whole n",
        ),
        (
            "{worker_pools: []}",
            "4:79: error[AMP104] session.orchestrator.config.worker_pools: List should have at least 1",
        ),
        (
            "{worker_pools: [5]}",
            "4:80: error[AMP103] session.orchestrator.config.worker_pools[0]: must be a mapping, not",
        ),
        (
            "{worker_pools: [{name: a}]}",
            "4:80: error[AMP101] session.orchestrator.config.worker_pools[0].worker_bundle: this key is required",
        ),
        (
            "{worker_pools: [{name: a, worker_bundle: ./worker.md, max_concurrent: 0}]}",
            "4:134: error[AMP104] session.orchestrator.config.worker_pools[0].max_concurrent: must be at least 1",
        ),
        (
            "{worker_pools: [{name: a, worker_bundle: ./worker.md, route_types: bug}]}",
            "4:131: error[AMP103] session.orchestrator.config.worker_pools[0].route_types: must be a list, not text",
        ),
        (
            "{worker_pools: [{name: a, worker_bundle: ./worker.md}], routing: {default_pool: b}}",
            "4:64: error[AMP104] session.orchestrator.config: routing names the pool 'b'; worker_pools has a",
        ),
        (
            "{worker_pools: [{name: a, worker_bundle: ./worker.md}], routing: {rules: [{then_pool: b}]}}",
            "4:64: error[AMP104] session.orchestrator.config: routing names the pool 'b'; worker_pools has a",
        ),
        (
            "{worker_pools: [{name: a, worker_bundle: ./worker.md}], background_sessions: 5}",
            "4:141: error[AMP103] session.orchestrator.config.background_sessions: must be a list, not a whole number",
        ),
        (
            "{worker_pools: [{name: a, worker_bundle: ./worker.md, tracker: isue}]}",
            "error[AMP110] session.orchestrator.config.background_sessions[0].tracker: unknown tracker 'isue'; did you",
        ),
    ],
)
async def test_a_mistake_in_the_pools_is_told_with_its_place(config: str, problem: str, declare: Any) -> None:
    found = [str(each) for each in await check_bundle(declare(config), load_plugins(environ={}))]
    assert any(problem in each for each in found), found
