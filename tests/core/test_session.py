"""The life of one session: its turns, its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from amplifier_core.errors import NoProviderMounted
from amplifier_core.llm_errors import LLMError
from amplifier_core.loader import ModuleLoader
from amplifier_core.permissions import PermissionGate, Policy
from amplifier_core.session import AmplifierSession
from amplifier_core.testing import MockTool
from amplifier_core.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core.coordinator import ModuleCoordinator
    from tests.core.conftest import LocalModules

Plan = dict[str, Any]


def state_of(session: AmplifierSession) -> str:
    """Return the state as a type checker cannot know it: it changes behind every await."""
    return session.state


class Raising:
    """An orchestrator that raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def execute(self, **kwargs: Any) -> str:
        raise self.error


# what a session is made from


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (None, "Configuration is required"),
        ({}, "Configuration is required"),
        ({"providers": []}, "Configuration must specify session.orchestrator"),
        ({"session": None}, "Configuration must specify session.orchestrator"),
        ({"session": "loop-echo"}, "Configuration must specify session.orchestrator"),
        ({"session": {"context": "c"}}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": "", "context": "c"}}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": "o"}}, "Configuration must specify session.context"),
    ],
)
def test_a_plan_without_the_necessary_says_what_is_missing(config: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        AmplifierSession(config)


def test_a_session_has_an_id_of_its_own_unless_it_is_given_one(plan: Plan) -> None:
    made = {AmplifierSession(plan).session_id for _ in range(100)}
    assert len(made) == 100
    given = AmplifierSession(plan, session_id="any non-empty / string", parent_id="p")
    assert (given.session_id, given.parent_id) == ("any non-empty / string", "p")
    assert (given.initialized, given.is_resumed, given.config is plan) == (False, False, True)
    assert isinstance(given.loader, ModuleLoader)


async def test_a_session_may_be_subclassed(plan: Plan, modules: LocalModules) -> None:
    class Own(AmplifierSession):
        async def execute(self, prompt: str) -> str:
            return await super().execute(prompt.upper())

    assert await Own(plan, loader=modules).execute("hi") == "HI!"


# turns


async def test_the_first_turn_announces_the_session_and_the_next_ones_do_not(plan: Plan, modules: LocalModules) -> None:
    plan["session"]["metadata"] = {"agent": "tester"}
    session = AmplifierSession(plan, loader=modules, session_id="s")
    assert [await session.execute("one"), await session.execute("two")] == ["one!", "two!"]
    await session.cleanup()
    assert modules.names_seen() == ["session:start", "prompt:submit", "prompt:submit", "session:end"]
    [start] = modules.data_of("session:start")
    assert start.pop("timestamp")
    assert start == {"session_id": "s", "parent_id": None, "metadata": {"agent": "tester"}}
    assert [message["content"] for message in session.transcript] == ["one", "one!", "two", "two!"]


@pytest.mark.parametrize("prompt", [None, 5, b"x", ["a"], {"a": 1}])
async def test_a_prompt_that_is_no_text_is_refused_before_anything_begins(
    prompt: Any, plan: Plan, modules: LocalModules
) -> None:
    async with AmplifierSession(plan, loader=modules) as session:
        with pytest.raises(TypeError, match=f"prompt: must be text, not {type(prompt).__name__}"):
            await session.execute(prompt)
        assert modules.names_seen() == []
        assert len(session.transcript) == 0


async def test_a_session_that_goes_on_says_so(plan: Plan, modules: LocalModules) -> None:
    async with AmplifierSession(plan, loader=modules, is_resumed=True) as session:
        await session.execute("one")
        await session.execute("two")
    assert modules.names_seen() == ["session:resume", "prompt:submit", "prompt:submit", "session:end"]


async def test_the_orchestrator_is_given_what_is_mounted(plan: Plan, modules: LocalModules) -> None:
    given: list[dict[str, Any]] = []

    class Looking:
        async def execute(self, **kwargs: Any) -> str:
            given.append(kwargs)
            return "seen"

    modules.mounts["loop-echo"] = modules.mounting("orchestrator", Looking())
    async with AmplifierSession(plan, loader=modules) as session:
        assert await session.execute("hi") == "seen"
        mounted = session.coordinator.get
        assert given == [
            {
                "prompt": "hi",
                "context": mounted("context"),
                "providers": mounted("providers"),
                "tools": mounted("tools"),
                "hooks": session.coordinator.hooks,
                "coordinator": session.coordinator,
            }
        ]


class RateLimited(Exception):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__("slow down")


async def test_the_orchestrator_s_exception_is_raised_as_it_is(plan: Plan, modules: LocalModules) -> None:
    error = RateLimited(2.5)
    modules.mounts["loop-echo"] = modules.mounting("orchestrator", Raising(error))
    async with AmplifierSession(plan, loader=modules) as session:
        with pytest.raises(RateLimited) as raised:
            await session.execute("hi")
        assert raised.value is error
        assert state_of(session) == "failed"
    assert modules.names_seen() == ["session:start", "session:end"]
    assert [data["status"] for data in modules.data_of("session:end")] == ["failed"]


async def test_a_turn_that_works_after_one_that_failed_completes_the_session(plan: Plan, modules: LocalModules) -> None:
    class Second:
        def __init__(self) -> None:
            self.errors = [ValueError("first")]

        async def execute(self, **kwargs: Any) -> str:
            if self.errors:
                raise self.errors.pop()
            return "done"

    modules.mounts["loop-echo"] = modules.mounting("orchestrator", Second())
    session = AmplifierSession(plan, loader=modules)
    with pytest.raises(ValueError, match="first"):
        await session.execute("hi")
    assert await session.execute("again") == "done"
    assert state_of(session) == "completed"
    assert modules.names_seen() == ["session:start"]


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("orchestrator", "No orchestrator module mounted"),
        ("context", "No context manager mounted"),
        ("providers", "No providers mounted"),
    ],
)
async def test_a_turn_without_a_necessary_module_says_which(
    plan: Plan, modules: LocalModules, missing: str, text: str
) -> None:
    session = AmplifierSession(plan, loader=modules)
    await session.initialize()
    await session.coordinator.unmount(missing, "echo")
    with pytest.raises(RuntimeError, match=f"^{text}$"):
        await session.execute("hi")
    assert state_of(session) == "failed"


async def test_a_turn_without_a_provider_says_why_there_is_none(plan: Plan, modules: LocalModules) -> None:
    modules.mounts["provider-echo"] = modules.failing(ValueError("ANTHROPIC_API_KEY is not set"))
    with pytest.raises(RuntimeError, match=r"No providers mounted \(provider-echo: ANTHROPIC_API_KEY is not set\)"):
        await AmplifierSession(plan, loader=modules).execute("hi")


@pytest.mark.parametrize("lacks_key", [True, False])
async def test_a_turn_without_a_provider_says_whether_a_key_is_missing(
    plan: Plan, modules: LocalModules, lacks_key: bool
) -> None:
    failure = LLMError("no")
    failure.lacks_key = lacks_key
    modules.mounts["provider-echo"] = modules.failing(failure)
    with pytest.raises(NoProviderMounted) as caught:
        await AmplifierSession(plan, loader=modules).execute("hi")
    assert caught.value.lacks_key is lacks_key


async def test_a_key_that_no_request_can_carry_is_a_missing_one(plan: Plan, modules: LocalModules) -> None:
    plan["providers"] = [{"module": "provider-echo", "config": {"api_key": "key\n"}}]
    with pytest.raises(NoProviderMounted, match="'api_key' has a line break") as caught:
        await AmplifierSession(plan, loader=modules).execute("hi")
    assert caught.value.lacks_key


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("error", [None, ValueError("cut")], ids=repr)
async def test_a_turn_that_was_told_to_stop_ends_cancelled(
    plan: Plan, modules: LocalModules, immediate: bool, error: Exception | None
) -> None:
    class Stopped:
        async def execute(self, **kwargs: Any) -> str:
            await kwargs["coordinator"].request_cancel(immediate)
            if error is not None:
                raise error
            return "partial"

    modules.mounts["loop-echo"] = modules.mounting("orchestrator", Stopped())
    session = AmplifierSession(plan, loader=modules)
    [outcome] = await asyncio.gather(session.execute("hi"), return_exceptions=True)
    assert outcome in ("partial", error)
    assert (outcome is error) is (error is not None)
    assert state_of(session) == "cancelled"
    assert modules.names_seen() == ["session:start", "cancel:requested", "cancel:completed"]
    [told] = modules.data_of("cancel:completed")
    assert told["was_immediate"] is immediate
    assert told.get("error") == (None if error is None else "cut")


async def test_a_task_that_is_cancelled_leaves_a_cancelled_session(plan: Plan, modules: LocalModules) -> None:
    reached = asyncio.Event()

    class Endless:
        async def execute(self, **kwargs: Any) -> str:
            reached.set()
            await asyncio.Event().wait()
            return "never"

    modules.mounts["loop-echo"] = modules.mounting("orchestrator", Endless())
    session = AmplifierSession(plan, loader=modules)
    task = asyncio.ensure_future(session.execute("hi"))
    await asyncio.wait_for(reached.wait(), 5)
    assert state_of(session) == "running"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state_of(session) == "cancelled"


async def test_each_turn_has_the_whole_budget_for_injections(plan: Plan, modules: LocalModules) -> None:
    session = AmplifierSession(plan, loader=modules)
    await session.initialize()
    session.coordinator._current_turn_injections = 9_999
    await session.execute("hi")
    assert session.coordinator._current_turn_injections == 0


# the end


async def test_the_end_is_told_to_the_hooks_before_anything_is_undone(plan: Plan, modules: LocalModules) -> None:
    order: list[str] = []

    async def mount_hook(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
        unregister = coordinator.hooks.register("session:end", lambda event, data: order.append(data["status"]))

        def undo() -> None:
            order.append("hook undone")
            unregister()

        return undo

    modules.mounts["hooks-own"] = mount_hook
    modules.mounts["tool-own"] = modules.noting(order, "tool", "tools", MockTool())
    plan |= {"tools": [{"module": "tool-own"}], "hooks": [{"module": "hooks-own"}]}
    session = AmplifierSession(plan, loader=modules)
    await session.execute("hi")
    await session.cleanup()
    await session.cleanup()
    assert order == ["tool", "completed", "hook undone", "tool ends"]


async def test_a_session_that_took_no_turn_ends_completed(plan: Plan, modules: LocalModules) -> None:
    async with AmplifierSession(plan, loader=modules) as session:
        assert state_of(session) == "running"
    assert [data["status"] for data in modules.data_of("session:end")] == ["completed"]
    assert state_of(session) == "completed"


async def test_a_session_that_was_never_initialised_ends_in_silence(plan: Plan, modules: LocalModules) -> None:
    session = AmplifierSession(plan, loader=modules)
    undone: list[str] = []
    session.coordinator.register_cleanup(lambda: undone.append("own"))
    await session.cleanup()
    assert undone == ["own"]
    assert modules.seen == []


async def test_the_context_manager_begins_and_ends_the_session_whatever_happens_inside(
    plan: Plan, modules: LocalModules
) -> None:
    session = AmplifierSession(plan, loader=modules)
    with pytest.raises(ValueError, match="inside"):
        async with session as entered:
            assert entered is session
            assert session.initialized
            raise ValueError("inside")
    assert modules.names_seen() == ["session:end"]
    assert modules.undone == ["orchestrator"]


# the history


async def test_a_history_that_is_given_is_the_session_s_own(plan: Plan, modules: LocalModules) -> None:
    earlier = Transcript([{"role": "user", "content": "before"}])
    session = AmplifierSession(plan, loader=modules, transcript=earlier)
    assert session.coordinator.get_capability("session.transcript") is earlier
    await session.execute("now")
    assert session.transcript is earlier
    assert [message["content"] for message in earlier] == ["before", "now", "now!"]


async def test_a_context_that_knows_no_transcript_is_given_the_messages(plan: Plan, modules: LocalModules) -> None:
    plan["session"]["context"] = "context-foreign"
    earlier = Transcript([{"role": "user", "content": "before"}])
    async with AmplifierSession(plan, loader=modules, transcript=earlier) as session:
        await session.execute("now")
        messages = await session.coordinator.get("context").get_messages()
    assert [message["content"] for message in messages] == ["before", "now", "now!"]
    assert list(earlier) == [{"role": "user", "content": "before"}]


async def test_a_history_that_the_context_begins_anew_is_the_session_s(plan: Plan, modules: LocalModules) -> None:
    session = AmplifierSession(plan, loader=modules)
    fresh = Transcript()
    session.coordinator.register_capability("session.transcript", fresh)
    assert session.transcript is fresh


def test_a_session_says_what_it_is(plan: Plan) -> None:
    assert repr(AmplifierSession(plan, session_id="s")) == "<AmplifierSession s running>"


async def test_a_session_that_is_let_go_keeps_its_history_and_nothing_keeps_it(
    plan: Plan, modules: LocalModules, tmp_path: Path
) -> None:
    session = AmplifierSession(plan, loader=modules)
    await session.execute("now")
    await session.cleanup()
    coordinator, history = session.coordinator, list(session.transcript)
    coordinator.guard(PermissionGate(Policy(), tmp_path))
    coordinator.hooks.register("e", session.execute)
    coordinator.cancellation.on_change(session.__repr__)
    coordinator.cancellation.request_graceful()
    coordinator.register_capability("own", 1)
    session.release()
    assert list(await session.history()) == history
    assert (session.state, session.coordinator.get_capability("own")) == ("completed", 1)
    assert (coordinator.session, coordinator.get("providers"), coordinator.get("context")) == (None, {}, None)
    assert (coordinator.hooks.list_handlers(), coordinator.cancellation.is_graceful) == ({}, True)
    assert "tool:pre" in coordinator.hooks.heard
    assert (await coordinator.hooks.emit("tool:pre", {"tool_name": "x"})).action == "deny"
    gone, parts = ref(session), ref(coordinator)
    del session, coordinator
    assert (gone(), parts()) == (None, None), "no ring is left: they go without a search for one"
