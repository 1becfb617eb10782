"""The foreman's orchestrator in a program without a command line: its workers, their events, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amplifier_bundle_foreman
from amplifier_bundle_foreman import ForemanOrchestrator
from amplifier_core.errors import BundleError
from amplifier_core.testing import wait_for
from amplifier_foundation import BundleRegistry, load_bundle
from amplifier_foundation.background import BackgroundSessionManager
from amplifier_foundation.events import EventRouter
from amplifier_tool_issue import Tracker

PATIENCE = 20
Declare = Callable[..., dict[str, Any]]
Managers = list[BackgroundSessionManager]


def statuses(manager: BackgroundSessionManager) -> dict[str, str]:
    return {row["name"]: row["status"] for row in manager.get_status().values()}


async def until(condition: Callable[[], bool]) -> None:
    assert await wait_for(condition, PATIENCE)


async def until_closed(issues: Tracker, count: int) -> None:
    """Wait until so many issues are closed."""
    async with asyncio.timeout(PATIENCE):
        while len(await issues.find(status=["closed"])) < count:
            await asyncio.sleep(0.01)


async def test_bundle_parses_background_sessions(program: Any) -> None:
    registry = BundleRegistry(plugins=program.plugins).names()
    bundle = await load_bundle("foreman:bundle", registry=registry)
    found = {each.name: (each.pool_size, each.on_complete_emit) for each in bundle.background_sessions}
    assert found == {
        "coding-workers": (3, "work:completed"),
        "research-workers": (2, "work:completed"),
        "testing-workers": (1, "work:completed"),
        "test-runner": (1, "tests:completed"),
    }
    workers = [await load_bundle(str(each.bundle)) for each in bundle.background_sessions]
    assert [each.name for each in workers] == ["coding-worker", "research-worker", "testing-worker", "testing-worker"]


async def test_orchestrator_initializes_manager(program: Any, managers: Managers, declare: Declare) -> None:
    session = await program.session(background_sessions=[declare("coding")])
    assert managers == [], "the first turn makes it"
    await session.execute("hello")
    await session.execute("hello again")
    [manager] = managers
    assert statuses(manager) == {"coding": "running"}


async def test_orchestrator_starts_configured_sessions(program: Any, managers: Managers, declare: Declare) -> None:
    session = await program.session(
        declared=[declare("coding"), declare("later", start_on_parent_start=False)],
        background_sessions=[declare("testing", triggers=[{"type": "manual"}])],
        worker_pools=[{"name": "pool", "worker_bundle": declare("pool")["bundle"], "route_types": ["research"]}],
    )
    await session.execute("hello")
    assert statuses(managers[0]) == {"coding": "running", "testing": "running", "pool": "running"}


async def test_orchestrator_stops_on_cleanup(program: Any, managers: Managers, declare: Declare) -> None:
    before = asyncio.all_tasks()
    session = await program.session(background_sessions=[declare("coding"), declare("testing")])
    await session.execute("hello")
    await session.cleanup()
    assert statuses(managers[0]) == {"coding": "stopped", "testing": "stopped"}
    assert asyncio.all_tasks() == before


async def test_event_router_registered(program: Any, declare: Declare) -> None:
    session = await program.session(background_sessions=[declare("coding")])
    await session.execute("hello")
    assert isinstance(session.coordinator.get_capability("event_router"), EventRouter)


async def test_a_router_of_the_program_is_used(program: Any, held: Any, declare: Declare) -> None:
    router = EventRouter(program.store)
    session = await program.session(background_sessions=[declare("coding", runner="runner-held")])
    session.coordinator.register_capability("event_router", router)
    held.go.set()
    async with router.subscribe(["issue:closed"]) as reader, asyncio.timeout(PATIENCE):
        await session.execute("file one")
        event = await anext(reader)
    assert session.coordinator.get_capability("event_router") is router
    assert event.data["title"] == "one"


def test_legacy_worker_code_removed() -> None:
    folder = Path(amplifier_bundle_foreman.__file__).parent
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert not [name for name in ("_spawn_worker_task", "_worker_tasks") if name in text]
    assert not [name for name in ("_spawn_worker_task", "_worker_tasks") if hasattr(ForemanOrchestrator({}), name)]


async def test_what_the_foreman_files_is_worked_and_closed(program: Any, issues: Tracker, declare: Declare) -> None:
    session = await program.session(background_sessions=[declare("coding")])
    assert '"id": 1' in await session.execute("file one")
    await session.execute("file two")
    await until_closed(issues, 2)
    assert [(each.title, each.result) for each in await issues.find()] == [
        ("one", "Did: 1: one"),
        ("two", "Did: 2: two"),
    ]


async def test_a_program_without_a_store_keeps_its_issues_in_memory(program: Any, held: Any, declare: Declare) -> None:
    program.store, store = None, program.store
    session = await program.session(background_sessions=[declare("coding", runner="runner-held")])
    held.go.set()
    await session.execute("file one")
    await until(lambda: held.done == ["1: one"])
    program.store = store


@pytest.mark.parametrize("spelling", ["pool_size", "max_concurrent"])
async def test_no_more_sessions_are_at_work_than_the_pool_has_places(
    program: Any, held: Any, issues: Tracker, declare: Declare, spelling: str
) -> None:
    if spelling == "pool_size":
        given: dict[str, Any] = {"background_sessions": [declare("coding", pool_size=3, runner="runner-held")]}
    else:
        bundle, rest = declare("coding")["bundle"], {"runner": "runner-held"}
        pools = [{"name": "coding", "worker_bundle": bundle, "max_concurrent": 3, **rest}]
        given = {"worker_pools": pools, "routing": {"default_pool": "coding"}}
    for number in range(8):
        await issues.create(f"issue {number}")
    session = await program.session(**given)
    await session.execute("hello")
    await until(lambda: held.at_work == 3)
    assert [each.status for each in await issues.find()].count("in_progress") == 3
    held.go.set()
    await until_closed(issues, 8)
    assert (held.most, len(held.done)) == (3, 8)


async def test_each_pool_takes_the_types_that_are_routed_to_it(
    program: Any, held: Any, issues: Tracker, declare: Declare
) -> None:
    bundle = declare("any")["bundle"]
    made = {"worker_bundle": bundle, "runner": "runner-held"}
    session = await program.session(
        worker_pools=[
            {"name": "coding", "max_concurrent": 2, **made},
            {"name": "reading", "route_types": ["research"], **made},
        ],
        routing={"default_pool": "coding", "rules": [{"if_metadata_type": "question", "then_pool": "reading"}]},
    )
    for kind in ("task", "research", "question", "bug"):
        await issues.create(kind, type=kind)
    held.go.set()
    await session.execute("hello")
    await until_closed(issues, 4)
    queues = {each.title: str(each.queue).rpartition("/")[2] for each in await issues.find()}
    assert queues == {"task": "coding", "bug": "coding", "research": "reading", "question": "reading"}


async def test_a_program_that_loads_a_bundle_has_each_of_its_pools_and_sessions_once(
    program: Any, managers: Managers
) -> None:
    pools = "worker_pools: [{name: coding, worker_bundle: ./worker.md}], background_sessions: [{name: own}]"
    path = program.folder / "team.md"
    path.write_text(
        "---\nbundle: {name: team}\nproviders: [{module: provider-playbook, config: {otherwise: {say: Hello.}}}]\n"
        f"session: {{orchestrator: {{module: orchestrator-foreman, config: {{{pools}}}}}}}\n"
        "background_sessions: [{name: top, bundle: ./worker.md}]\n---\n"
    )
    prepared = await (await load_bundle(str(path))).prepare()
    capabilities = {"session.storage": program.store}
    session = await prepared.create_session(
        session_cwd=program.folder, plugins=program.plugins, capabilities=capabilities
    )
    program.sessions.append(session)
    await session.execute("hello")
    assert [statuses(each) for each in managers] == [dict.fromkeys(("top", "own", "coding"), "running")]


async def test_a_start_that_fails_leaves_nothing_and_is_tried_again(
    program: Any, managers: Managers, declare: Declare
) -> None:
    missing = program.folder / "missing.md"
    session = await program.session(background_sessions=[declare("coding"), declare("lost", bundle=str(missing))])
    with pytest.raises(BundleError, match="missing.md"):
        await session.execute("hello")
    assert statuses(managers[0]) == {"coding": "stopped"}
    missing.write_text((program.folder / "worker.md").read_text())
    await session.execute("hello")
    assert [statuses(each) for each in managers] == [
        {"coding": "stopped"},
        {"coding": "running", "lost": "running"},
    ]


async def test_a_session_that_another_one_has_made_starts_no_workers(
    program: Any, managers: Managers, declare: Declare
) -> None:
    session = await program.session(background_sessions=[declare("coding")])
    session.coordinator.register_capability("session.spawn", object())
    await session.execute("hello")
    assert managers == []


async def test_workers_of_another_process_are_asked_for_again_at_each_turn(program: Any) -> None:
    owners: list[str | None] = ["process 7", "process 7", None]

    class Host:
        running = None

        async def start(self) -> str | None:
            return owners.pop(0)

    session = await program.session()
    session.coordinator.register_capability("background.host", Host())
    for _ in range(4):
        await session.execute("hello")
    assert owners == []


async def test_pools_that_cannot_be_are_an_error_with_its_place(program: Any) -> None:
    session = await program.session(worker_pools=[{"name": "coding"}])
    with pytest.raises(BundleError, match=r"worker_pools\[0\]\.worker_bundle"):
        await session.execute("hello")
