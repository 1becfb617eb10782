"""Sessions made from sessions: the kernel links, shares and tells; what a child is for, is decided elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import SessionExists
from amplifier_core.loader import ModuleLoader
from amplifier_core.session import AmplifierSession

if TYPE_CHECKING:
    from amplifier_core.coordinator import ModuleCoordinator
    from tests.core.conftest import LocalModules

Plan = dict[str, Any]


def contents(session: AmplifierSession) -> list[str]:
    return [message["content"] for message in session.transcript]


# lineage


async def test_a_child_knows_its_parent(plan: Plan, modules: LocalModules) -> None:
    child = AmplifierSession(plan, loader=modules, session_id="abc-123-child-1", parent_id="abc-123")
    assert (child.session_id, child.parent_id) == ("abc-123-child-1", "abc-123")
    assert child.coordinator.session_id == "abc-123-child-1"
    assert child.coordinator.parent_id == "abc-123"


async def test_session_fork_is_emitted_while_the_child_is_initialised(plan: Plan, modules: LocalModules) -> None:
    child = AmplifierSession(plan, loader=modules, session_id="abc-123-child-1", parent_id="abc-123")
    assert modules.seen == []
    await child.initialize()
    [(event, data)] = modules.seen
    assert event == "session:fork"
    assert data.pop("timestamp")
    assert data == {"parent": "abc-123", "session_id": "abc-123-child-1", "parent_id": "abc-123"}
    await child.initialize()
    assert modules.names_seen() == ["session:fork"]


async def test_session_fork_carries_the_metadata_of_the_child(plan: Plan, modules: LocalModules) -> None:
    plan["session"]["metadata"] = {"agent": "reviewer"}
    await AmplifierSession(plan, loader=modules, parent_id="p").initialize()
    assert modules.data_of("session:fork")[0]["metadata"] == {"agent": "reviewer"}


async def test_a_top_level_session_is_no_fork(parent: AmplifierSession, modules: LocalModules) -> None:
    assert parent.parent_id is None
    await parent.execute("hi")
    assert "session:fork" not in modules.names_seen()
    assert {data["parent_id"] for _, data in modules.seen} == {None}


async def test_every_event_of_a_child_says_whose_child_it_is(parent: AmplifierSession, modules: LocalModules) -> None:
    child = await parent.fork()
    await child.execute("hi")
    await child.coordinator.request_cancel()
    await child.cleanup()
    assert modules.names_seen("p-fork-1") == [
        "session:fork", "session:start", "prompt:submit", "cancel:requested", "session:end",
    ]  # fmt: skip
    assert {data["parent_id"] for _, data in modules.seen if data["session_id"] == "p-fork-1"} == {"p"}


async def test_ids_are_unique_and_show_the_hierarchy(parent: AmplifierSession) -> None:
    first, second, named = await parent.fork(), await parent.fork(), await parent.fork(session_id="p-specialist-a1b2")
    nested = await second.fork()
    assert [each.session_id for each in (first, second, named, nested)] == [
        "p-fork-1", "p-fork-2", "p-specialist-a1b2", "p-fork-2-fork-1",
    ]  # fmt: skip
    assert [each.parent_id for each in (first, second, named, nested)] == ["p", "p", "p", "p-fork-2"]


async def test_a_made_up_id_is_none_that_was_given_before(parent: AmplifierSession) -> None:
    given = await parent.fork(session_id="p-fork-1")
    await given.cleanup()
    await parent.fork(session_id="p-fork-3")
    made = [(await parent.fork()).session_id for _ in range(2)]
    assert made == ["p-fork-2", "p-fork-4"]


async def test_an_id_of_another_session_is_refused(parent: AmplifierSession) -> None:
    child = await parent.fork(session_id="k")
    for session, taken in ((parent, "p"), (parent, "k"), (child, "p"), (child, "k")):
        with pytest.raises(SessionExists, match=f"^session '{taken}' exists already; choose another id$"):
            await session.fork(session_id=taken)
    assert (parent.children, child.children) == ([child], [])
    await child.cleanup()
    with pytest.raises(SessionExists):
        await parent.fork(session_id="k")


async def test_of_two_forks_at_once_with_one_id_the_second_is_refused(parent: AmplifierSession) -> None:
    made = await asyncio.gather(*(parent.fork(session_id="k") for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in made] == [AmplifierSession, SessionExists]


async def test_the_id_of_a_fork_that_failed_is_free_again(parent: AmplifierSession) -> None:
    with pytest.raises(ValueError, match="Configuration is required"):
        await parent.fork(config={}, session_id="k")
    assert (await parent.fork(session_id="k")).session_id == "k"


async def test_child_sessions_can_have_children_to_any_depth(parent: AmplifierSession, modules: LocalModules) -> None:
    session = parent
    for _ in range(30):
        session = await session.fork()
    assert session.session_id == "p" + "-fork-1" * 30
    assert len(modules.data_of("session:fork")) == 30


async def test_forking_is_deterministic_given_the_same_ids(plan: Plan, modules: LocalModules) -> None:
    seen: list[Any] = []
    for _ in range(2):
        async with AmplifierSession(plan, loader=modules, session_id="p") as parent:
            await parent.execute("one")
            child = await parent.fork(session_id="c")
            await child.execute("two")
            events = [(event, {**data, "timestamp": ""}) for event, data in modules.seen]
            seen.append((contents(child), events, child.coordinator.to_dict()))
            await child.cleanup()
        modules.seen.clear()
    assert seen[0] == seen[1]


# configuration


async def test_a_child_takes_over_config_loader_and_what_the_user_is_asked_through(
    plan: Plan, modules: LocalModules
) -> None:
    approvals: Any = object()
    display: Any = object()
    parent = AmplifierSession(plan, loader=modules, approval_system=approvals, display_system=display)
    child = await parent.fork(initialize=False)
    assert child.config == parent.config
    assert child.loader is parent.loader
    assert child.coordinator.approval_system is approvals
    assert child.coordinator.display_system is display
    assert (child.is_resumed, child.initialized, child.state) == (False, False, "running")


async def test_a_config_that_is_given_is_the_child_s_as_it_is(parent: AmplifierSession, modules: LocalModules) -> None:
    modules.mounts["tool-own"] = modules.mounting("tools", object(), "own")
    own = {**parent.config, "tools": [{"module": "tool-own"}], "agents": {"x": {"unknown": True}}}
    child = await parent.fork(config=own)
    assert child.config is own
    assert list(child.coordinator.get("tools")) == ["own"]
    assert parent.coordinator.get("tools") == {}


async def test_an_empty_config_is_not_taken_for_none(parent: AmplifierSession) -> None:
    with pytest.raises(ValueError, match="Configuration is required"):
        await parent.fork(config={})
    assert parent.children == []


async def test_a_child_finds_the_folder_and_the_module_sources_of_its_parent(parent: AmplifierSession) -> None:
    resolver = FailingResolver()
    await parent.coordinator.mount("module-source-resolver", resolver)
    parent.coordinator.register_capability("session.working_dir", "/work")
    parent.coordinator.register_capability("mention_resolver", "mentions")
    parent.coordinator.register_capability("todo", "the parent's own")
    child = await parent.fork()
    assert child.coordinator.get("module-source-resolver") is resolver
    assert child.coordinator.get_capability("session.working_dir") == "/work"
    assert child.coordinator.get_capability("mention_resolver") == "mentions"
    assert child.coordinator.get_capability("todo") is None


class FailingResolver:
    """Knows no module."""

    def resolve(self, module_id: str, source_hint: Any = None) -> Any:
        raise AssertionError("the modules of these tests have no sources")


async def test_a_child_may_be_given_capabilities_before_it_is_initialised(
    parent: AmplifierSession, modules: LocalModules
) -> None:
    found: list[Any] = []

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        found.append(coordinator.get_capability("depth"))

    modules.mounts["tool-own"] = mount
    child = await parent.fork(config={**parent.config, "tools": [{"module": "tool-own"}]}, initialize=False)
    assert parent.children == [child]
    assert modules.names_seen() == []
    child.coordinator.register_capability("depth", 1)
    await child.initialize()
    assert found == [1]
    assert modules.names_seen() == ["session:fork"]


async def test_a_fork_is_of_its_parent_s_class(plan: Plan, modules: LocalModules) -> None:
    class Own(AmplifierSession):
        pass

    assert type(await Own(plan, loader=modules).fork(initialize=False)) is Own


# the end


async def test_clean_up_may_cascade_and_then_the_youngest_end_first(
    parent: AmplifierSession, modules: LocalModules
) -> None:
    first, second = await parent.fork(), await parent.fork()
    nested = await first.fork()
    await parent.cleanup(cascade_children=True)
    ended = [data["session_id"] for data in modules.data_of("session:end")]
    assert ended == ["p-fork-2", "p-fork-1-fork-1", "p-fork-1", "p"]
    assert [each.children for each in (parent, first, second, nested)] == [[], [], [], []]
    await parent.cleanup(cascade_children=True)
    assert len(modules.data_of("session:end")) == 4


async def test_without_cascade_the_children_stay(parent: AmplifierSession, modules: LocalModules) -> None:
    child = await parent.fork()
    await parent.cleanup()
    assert parent.children == [child]
    assert [data["session_id"] for data in modules.data_of("session:end")] == ["p"]
    await parent.cleanup(cascade_children=True)
    assert [data["session_id"] for data in modules.data_of("session:end")] == ["p", "p-fork-1"]


async def test_a_child_that_ends_badly_does_not_keep_the_others_alive(
    parent: AmplifierSession, modules: LocalModules
) -> None:
    def leave() -> None:
        raise SystemExit("from a child")

    children = [await parent.fork() for _ in range(3)]
    children[1].coordinator.register_cleanup(leave)
    with pytest.raises(SystemExit, match="from a child"):
        await parent.cleanup(cascade_children=True)
    ended = [data["session_id"] for data in modules.data_of("session:end")]
    assert ended == ["p-fork-3", "p-fork-2", "p-fork-1", "p"]
    assert len(modules.undone) == 4


async def test_a_child_that_ends_is_let_go(parent: AmplifierSession) -> None:
    child, other = await parent.fork(), await parent.fork()
    await child.cleanup()
    assert parent.children == [other]
    await parent.coordinator.request_cancel()
    assert (child.coordinator.cancellation.is_cancelled, other.coordinator.cancellation.is_cancelled) == (False, True)


# cancellation


async def test_a_stop_of_the_parent_reaches_its_children_and_theirs(parent: AmplifierSession) -> None:
    child = await parent.fork()
    nested = await child.fork()
    await parent.coordinator.request_cancel(immediate=True)
    assert child.coordinator.cancellation.is_immediate
    assert nested.coordinator.cancellation.is_immediate


async def test_a_stop_of_a_child_does_not_reach_its_parent(parent: AmplifierSession) -> None:
    child, sibling = await parent.fork(), await parent.fork()
    await child.coordinator.request_cancel()
    assert not parent.coordinator.cancellation.is_cancelled
    assert not sibling.coordinator.cancellation.is_cancelled


async def test_a_fork_of_a_stopped_session_is_stopped(parent: AmplifierSession) -> None:
    await parent.coordinator.request_cancel()
    assert (await parent.fork()).coordinator.cancellation.is_graceful


async def test_a_stop_at_once_interrupts_the_turn_of_a_child(plan: Plan, modules: LocalModules) -> None:
    class Interruptible:
        """Waits for nothing until its session is told to stop at once."""

        def __init__(self) -> None:
            self.reached = asyncio.Event()

        async def execute(self, coordinator: ModuleCoordinator, **kwargs: Any) -> str:
            stopped = asyncio.Event()

            async def stop() -> None:
                stopped.set()

            coordinator.cancellation.on_cancel(stop)
            self.reached.set()
            await stopped.wait()
            return "stopped"

    loop = Interruptible()
    modules.mounts["loop-wait"] = modules.mounting("orchestrator", loop)
    parent = AmplifierSession(plan, loader=modules, session_id="p")
    await parent.initialize()
    child = await parent.fork(config={**plan, "session": {"orchestrator": "loop-wait", "context": "context-shared"}})
    turn = asyncio.ensure_future(child.execute("wait"))
    await asyncio.wait_for(loop.reached.wait(), 5)
    await parent.coordinator.request_cancel(immediate=True)
    assert await asyncio.wait_for(turn, 60) == "stopped"
    assert (child.state, parent.state) == ("cancelled", "running")
    assert modules.names_seen("p-fork-1")[-1] == "cancel:completed"


async def test_a_child_that_is_being_initialised_hears_of_a_stop(plan: Plan, modules: LocalModules) -> None:
    parent = AmplifierSession(plan, loader=modules, session_id="p")

    async def stopping(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await parent.coordinator.request_cancel(immediate=True)
        heard.append(coordinator.cancellation.is_immediate)

    heard: list[bool] = []
    modules.mounts["tool-stopping"] = stopping
    await parent.fork(config={**plan, "tools": [{"module": "tool-stopping"}]})
    assert heard == [True]


# what the kernel leaves to others


async def test_the_kernel_reads_nothing_into_agents_and_spawn(plan: Plan) -> None:
    plan |= {"agents": {"x": object()}, "spawn": 7, "anything": "else"}
    assert AmplifierSession(plan).config is plan


async def test_a_session_made_by_its_constructor_is_linked_by_its_parent_s_id_alone(
    parent: AmplifierSession, plan: Plan, modules: LocalModules
) -> None:
    child = AmplifierSession(plan, loader=parent.loader, session_id="own", parent_id=parent.session_id)
    await child.initialize()
    assert parent.children == []
    assert len(child.transcript) == 0
    assert isinstance(parent.loader, ModuleLoader)
    await child.cleanup()
