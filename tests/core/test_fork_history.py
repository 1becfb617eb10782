"""What a fork shares with its source, and who may refuse it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import ForkRefused
from amplifier_core.hook_data import ForkRequest, ForkResult
from amplifier_core.hookspecs import hookimpl
from amplifier_core.plugins import Plugins
from amplifier_core.session import AmplifierSession

if TYPE_CHECKING:
    from amplifier_core.coordinator import ModuleCoordinator
    from tests.core.conftest import LocalModules

Plan = dict[str, Any]


def contents(session: AmplifierSession) -> list[str]:
    return [message["content"] for message in session.transcript]


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
