"""Sessions made from sessions: the kernel links, shares and tells; what a child is for, is decided elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import ForkRefused
from amplifier_core.hookspecs import hookimpl
from amplifier_core.loader import ModuleLoader
from amplifier_core.moments import ForkRequest, ForkResult
from amplifier_core.plugins import Plugins
from amplifier_core.session import AmplifierSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.coordinator import ModuleCoordinator
    from tests.core.conftest import LocalModules

Plan = dict[str, Any]


@pytest.fixture
async def parent(plan: Plan, modules: LocalModules) -> AsyncIterator[AmplifierSession]:
    async with AmplifierSession(plan, loader=modules, session_id="p") as session:
        yield session
        await session.cleanup(cascade_children=True)


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


# history


async def test_a_fork_has_its_parent_s_history_and_shares_every_message(parent: AmplifierSession) -> None:
    await parent.execute("one")
    child = await parent.fork()
    assert contents(child) == ["one", "one!"]
    assert all(own is shared for own, shared in zip(child.transcript, parent.transcript, strict=True))
    assert child.transcript._tail is parent.transcript._tail


async def test_a_fork_at_a_point_shares_what_was_said_before_it(parent: AmplifierSession) -> None:
    await parent.execute("one")
    await parent.execute("two")
    child = await parent.fork(at=2)
    await child.execute("other")
    assert contents(child) == ["one", "one!", "other", "other!"]
    assert contents(parent) == ["one", "one!", "two", "two!"]


@pytest.mark.parametrize("at", [-1, 3])
async def test_a_point_outside_the_history_is_refused_and_makes_no_child(parent: AmplifierSession, at: int) -> None:
    await parent.execute("one")
    with pytest.raises(IndexError, match=f"fork point {at} is not within 0 and 2"):
        await parent.fork(at=at)
    assert parent.children == []


async def test_a_child_may_begin_without_the_history(parent: AmplifierSession) -> None:
    await parent.execute("one")
    child = await parent.fork(share_history=False)
    assert contents(child) == []
    assert (child.parent_id, len(await child.coordinator.get("context").get_messages())) == ("p", 0)


async def test_parent_and_child_are_independent_after_the_fork(parent: AmplifierSession) -> None:
    await parent.execute("shared")
    child = await parent.fork()
    await child.execute("child's")
    await parent.execute("parent's")
    grandchild = await child.fork()
    await child.coordinator.get("context").clear()
    assert contents(parent) == ["shared", "shared!", "parent's", "parent's!"]
    assert contents(grandchild) == ["shared", "shared!", "child's", "child's!"]
    assert contents(child) == []
    child.coordinator.register_capability("own", 1)
    child.coordinator.session_state["own"] = 1
    child.coordinator.hooks.register("own", lambda event, data: None)
    await child.coordinator.mount("tools", object(), "own")
    assert parent.coordinator.get_capability("own") is None
    assert parent.coordinator.session_state == {}
    assert parent.coordinator.hooks.list_handlers("own") == {"own": []}
    assert parent.coordinator.get("tools") == {}


async def test_the_end_of_the_parent_does_not_touch_its_forks(parent: AmplifierSession, modules: LocalModules) -> None:
    await parent.execute("one")
    child = await parent.fork()
    await parent.coordinator.get("context").clear()
    await parent.cleanup()
    assert await child.execute("two") == "two!"
    assert contents(child) == ["one", "one!", "two", "two!"]
    assert "session:end" not in modules.names_seen("p-fork-1")


CALLS = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "tool": "t", "arguments": {}}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "done"}


class ForkingTwice:
    """An orchestrator that forks its session while a tool call runs, and again when the result is there."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    async def execute(self, prompt: str, context: Any, coordinator: ModuleCoordinator, **kwargs: Any) -> str:
        assert coordinator.session is not None
        for message in ({"role": "user", "content": prompt}, CALLS, RESULT):
            await context.add_message(message)
            self.lengths.append(len((await coordinator.session.fork(initialize=False)).transcript))
        return "done"


@pytest.mark.parametrize("context", ["context-shared", "context-foreign"])
async def test_a_running_turn_is_forked_at_its_last_settled_message(
    plan: Plan, modules: LocalModules, context: str
) -> None:
    loop, told = ForkingTwice(), Telling()
    modules.mounts["loop-echo"] = modules.mounting("orchestrator", loop)
    plan["session"]["context"] = context
    plugins = Plugins()
    plugins.register(told)
    session = AmplifierSession(plan, loader=modules, session_id="p", plugins=plugins)
    await session.execute("hi")
    assert loop.lengths == [1, 1, 3]
    assert [result.at for result in told.results] == [1, 1, 3]
    assert [request.at for request in told.requests] == [1, 1, 3]


async def test_a_fork_point_between_a_call_and_its_result_lies_before_the_call(parent: AmplifierSession) -> None:
    for message in ({"role": "user", "content": "hi"}, CALLS, RESULT):
        parent.transcript.append(message)
    lengths = [len((await parent.fork(at=at, initialize=False)).transcript) for at in range(4)]
    assert lengths == [0, 1, 1, 3]


async def test_a_foreign_context_is_given_the_history_and_gives_it_on(plan: Plan, modules: LocalModules) -> None:
    plan["session"]["context"] = "context-foreign"
    parent = AmplifierSession(plan, loader=modules, session_id="p")
    await parent.execute("one")
    child = await parent.fork()
    await child.execute("two")
    grandchild = await child.fork(at=3)
    contexts = [each.coordinator.get("context") for each in (parent, child, grandchild)]
    assert [[message["content"] for message in await context.get_messages()] for context in contexts] == [
        ["one", "one!"],
        ["one", "one!", "two", "two!"],
        ["one", "one!", "two"],
    ]


async def test_a_child_may_keep_its_history_in_another_kind_of_context(
    parent: AmplifierSession, modules: LocalModules
) -> None:
    await parent.execute("one")
    foreign = {**parent.config, "session": {"orchestrator": "loop-echo", "context": "context-foreign"}}
    child = await parent.fork(config=foreign)
    await child.execute("two")
    back = await child.fork(config=parent.config)
    assert contents(back) == ["one", "one!", "two", "two!"]
    assert contents(parent) == ["one", "one!"]


# plugins


class Telling:
    """Sees every fork; refuses those that `refusal` says."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal
        self.requests: list[ForkRequest] = []
        self.results: list[ForkResult] = []

    @hookimpl
    async def amplifier_before_fork(self, request: ForkRequest) -> None:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal

    @hookimpl
    async def amplifier_after_fork(self, result: ForkResult) -> None:
        self.results.append(result)


async def test_plugins_are_asked_before_and_told_after_every_fork_of_a_family(
    plan: Plan, modules: LocalModules
) -> None:
    telling, plugins = Telling(), Plugins()
    plugins.register(telling)
    parent = AmplifierSession(plan, loader=modules, session_id="p", plugins=plugins)
    await parent.execute("one")
    child = await parent.fork()
    await child.fork(at=1, session_id="own")
    await child.fork(share_history=False)
    assert telling.requests == [
        ForkRequest("p", "p-fork-1", 2),
        ForkRequest("p-fork-1", "own", 1),
        ForkRequest("p-fork-1", "p-fork-1-fork-1", 0),
    ]
    assert [(each.source_id, each.session_id, each.at) for each in telling.results] == [
        (each.source_id, each.session_id, each.at) for each in telling.requests
    ]


async def test_a_fork_that_is_refused_leaves_nothing(plan: Plan, modules: LocalModules) -> None:
    refusal = ForkRefused("p", "no more than one level")
    telling, plugins = Telling(refusal), Plugins()
    plugins.register(telling)
    parent = AmplifierSession(plan, loader=modules, session_id="p", plugins=plugins)
    await parent.initialize()
    with pytest.raises(ForkRefused) as refused:
        await parent.fork()
    assert refused.value is refusal
    assert (parent.children, telling.results, modules.seen) == ([], [], [])
    telling.refusal = None
    assert (await parent.fork()).parent_id == "p"


async def test_a_child_that_cannot_be_initialised_is_undone_and_not_told(plan: Plan, modules: LocalModules) -> None:
    telling, plugins = Telling(), Plugins()
    plugins.register(telling)
    parent = AmplifierSession(plan, loader=modules, session_id="p", plugins=plugins)
    await parent.initialize()
    modules.mounts["context-bad"] = modules.failing(ValueError("broken"))
    bad = {**plan, "session": {"orchestrator": "loop-echo", "context": "context-bad"}}
    with pytest.raises(RuntimeError, match="Cannot initialize without context manager: broken"):
        await parent.fork(config=bad)
    assert (parent.children, telling.results, modules.undone) == ([], [], ["orchestrator"])


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
    assert await asyncio.wait_for(turn, 5) == "stopped"
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
