"""The life of one session: its modules, its turns, its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import UnknownName
from amplifier_core.loader import ModuleLoader, ModuleValidationError
from amplifier_core.session import AmplifierSession, LoadFailure
from amplifier_core.testing import MockContextManager, MockTool, ScriptedOrchestrator
from amplifier_core.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.coordinator import ModuleCoordinator
    from tests.core.conftest import LocalModules, Site

Plan = dict[str, Any]


def noting(order: list[str], name: str, point: str | None = None, module: Any = None) -> Callable[..., Any]:
    """Return a mount function that notes `name`, mounts `module`, and notes its end."""

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
        order.append(name)
        if point is not None:
            await coordinator.mount(point, module, name)
        return lambda: order.append(f"{name} ends")

    return mount


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


# mounting


async def test_modules_are_mounted_in_order_and_told_when_all_are(plan: Plan, modules: LocalModules) -> None:
    order: list[str] = []

    async def ready(coordinator: ModuleCoordinator) -> None:
        order.append(f"ready with {sorted(coordinator.get('tools'))}")

    async def mount_early(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        order.append("early-hook")
        modules.enqueue_on_session_ready("early-hook", ready)

    for kind, point in [("context", "context"), ("orchestrator", "orchestrator")]:
        modules.mounts[kind] = noting(order, kind, point, MockContextManager())
    for name in ("tool-b", "tool-a"):
        modules.mounts[name] = noting(order, name, "tools", MockTool(name))
    modules.mounts |= {"provider-p": noting(order, "p"), "early": mount_early, "late": noting(order, "late-hook")}
    plan = {
        "hooks": [{"module": "early"}, {"module": "late"}],
        "tools": [{"module": "tool-b"}, {"module": "tool-a"}],
        "providers": [{"module": "provider-p"}],
        "session": {"context": "context", "orchestrator": "orchestrator"},
    }
    session = AmplifierSession(plan, loader=modules)
    await session.initialize()
    await session.initialize()
    assert order == [
        *("orchestrator", "context", "p", "tool-b", "tool-a", "early-hook", "late-hook"),
        "ready with ['tool-a', 'tool-b']",
    ]


@pytest.mark.parametrize("spelling", ["string", "table"])
async def test_orchestrator_and_context_take_their_config_in_both_spellings(
    modules: LocalModules, spelling: str
) -> None:
    configs: dict[str, Any] = {}

    def keeping(point: str) -> Callable[..., Any]:
        async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
            configs[point] = config
            await coordinator.mount(point, ScriptedOrchestrator())

        return mount

    modules.mounts |= {"o": keeping("orchestrator"), "c": keeping("context")}
    plan: Plan = {
        "session": {"orchestrator": "o", "context": "c"},
        "orchestrator": {"config": {"n": 1}},
        "context": {"config": None},
    }
    if spelling == "table":
        plan = {"session": {"orchestrator": {"module": "o", "config": {"n": 1}}, "context": {"module": "c"}}}
    await AmplifierSession(plan, loader=modules).initialize()
    assert configs == {"orchestrator": {"n": 1}, "context": {}}


async def test_a_module_that_changes_its_config_does_not_change_the_plan(plan: Plan, modules: LocalModules) -> None:
    async def greedy(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        config.clear()

    modules.mounts["tool-greedy"] = greedy
    plan["tools"] = [{"module": "tool-greedy", "config": {"n": 1}}]
    await AmplifierSession(plan, loader=modules).initialize()
    assert plan["tools"] == [{"module": "tool-greedy", "config": {"n": 1}}]


async def test_the_source_that_a_bundle_names_reaches_the_loader(plan: Plan, modules: LocalModules) -> None:
    asked: list[tuple[str, Any]] = []

    class Asking(type(modules)):  # type: ignore[misc]  # the class of a fixture
        async def load(
            self, module_id: str, config: Any = None, source_hint: Any = None, coordinator: Any = None
        ) -> Any:
            asked.append((module_id, source_hint))
            return await super().load(module_id, config, source_hint, coordinator)

    plan["session"] |= {"orchestrator_source": "git+o", "context": {"module": "context-shared", "source": "git+c"}}
    plan["providers"] = [{"module": "provider-echo", "source": "git+p"}]
    await AmplifierSession(plan, loader=Asking()).initialize()
    assert asked == [
        ("loop-echo", "git+o"), ("context-shared", "git+c"), ("provider-echo", "git+p"), ("hooks-recorder", None),
    ]  # fmt: skip


async def test_a_tool_that_fails_is_reported_and_the_session_works_without_it(
    plan: Plan, modules: LocalModules, caplog: pytest.LogCaptureFixture
) -> None:
    modules.mounts["tool-bad"] = modules.failing(OSError("no such device"))
    modules.mounts["tool-good"] = modules.mounting("tools", MockTool("good"))
    plan["tools"] = [{"module": "tool-bad"}, {"module": "tool-good"}]
    async with AmplifierSession(plan, loader=modules, session_id="s") as session:
        assert session.load_failures == [LoadFailure("tool", "tool-bad", "no such device")]
        assert list(session.coordinator.get("tools")) == ["good"]
        assert await session.execute("hi") == "hi!"
    [told] = modules.data_of("module:load_failed")
    assert told.pop("timestamp")
    assert told == {
        "module_type": "tool",
        "module_id": "tool-bad",
        "error": "no such device",
        "reason_code": "unknown",
        "session_id": "s",
        "parent_id": None,
    }
    assert caplog.messages == ["tool 'tool-bad' was not mounted: no such device"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnknownName("module", "tool-x", []), "missing_source"),
        (ModuleValidationError("no", reason_code="invalid_package_layout"), "invalid_package_layout"),
    ],
)
async def test_what_is_told_of_a_failure_has_its_reason(
    plan: Plan, modules: LocalModules, error: Exception, reason: str
) -> None:
    modules.mounts["hooks-bad"] = modules.failing(error)
    plan["hooks"].insert(0, {"module": "hooks-bad", "instance_id": 7})
    await AmplifierSession(plan, loader=modules).initialize()
    [told] = modules.data_of("module:load_failed")
    assert (told["module_type"], told["reason_code"], told["instance_id"]) == ("hook", reason, "7")


@pytest.mark.parametrize("entry", [{}, {"config": {}}, {"module": ""}, {"module": None}], ids=repr)
async def test_an_entry_that_names_no_module_says_so(plan: Plan, modules: LocalModules, entry: dict[str, Any]) -> None:
    plan["tools"] = [entry]
    session = AmplifierSession(plan, loader=modules)
    await session.initialize()
    assert session.load_failures == [LoadFailure("tool", "?", "the entry has no 'module'")]


async def test_a_task_cancelled_while_it_mounts_undoes_what_was_mounted(plan: Plan, modules: LocalModules) -> None:
    reached = asyncio.Event()

    async def endless(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        reached.set()
        await asyncio.Event().wait()

    modules.mounts["tool-endless"] = endless
    plan["tools"] = [{"module": "tool-endless"}]
    session = AmplifierSession(plan, loader=modules)
    task = asyncio.ensure_future(session.initialize())
    await asyncio.wait_for(reached.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert modules.undone == ["orchestrator"]
    assert not session.initialized


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("orchestrator", "Cannot initialize without orchestrator: "),
        ("context", "Cannot initialize without context manager: "),
    ],
)
async def test_without_orchestrator_or_context_there_is_no_session(
    plan: Plan, modules: LocalModules, section: str, text: str
) -> None:
    cause = OSError("no such device")
    modules.mounts["bad"] = modules.failing(cause)
    plan["session"][section] = "bad"
    session = AmplifierSession(plan, loader=modules)
    with pytest.raises(RuntimeError, match=f"^{text}no such device$") as failure:
        await session.initialize()
    assert failure.value.__cause__ is cause
    assert modules.undone == (["orchestrator"] if section == "context" else [])
    assert not session.initialized
    await session.cleanup()
    assert modules.seen == []


async def test_an_unknown_orchestrator_says_how_to_get_it(plan: Plan, modules: LocalModules) -> None:
    plan["session"]["orchestrator"] = "loop-nobody-has"
    with pytest.raises(RuntimeError, match="Install it with: pip install amplifier-loop-nobody-has"):
        await AmplifierSession(plan, loader=modules).initialize()


# modules that wait until all is mounted


READY = """
import asyncio

async def mount(coordinator, config):
    for _ in range(config.get("pauses", 0)):
        await asyncio.sleep(0)

async def on_session_ready(coordinator):
    coordinator.session_state.setdefault("ready", []).append(__name__)
"""


async def test_each_session_tells_its_own_modules_that_all_is_mounted(
    site: Site, plan: Plan, modules: LocalModules
) -> None:
    async def slow(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    modules.mounts["tool-slow"] = slow
    sessions = []
    for number, name in enumerate("ab"):
        files = {f"ready_{name}.py": READY}
        site.install(f"tool-{name}", {"amplifier.modules": {f"tool-{name}": f"ready_{name}:mount"}}, files)
        tools = [{"module": f"tool-{name}", "config": {"pauses": number}}, {"module": "tool-slow"}]
        sessions.append(AmplifierSession({**plan, "tools": tools}, loader=modules))
    await asyncio.gather(*(session.initialize() for session in sessions))
    assert [session.coordinator.session_state["ready"] for session in sessions] == [["ready_a"], ["ready_b"]]


async def test_modules_of_a_session_that_failed_are_not_told_by_the_next_one(
    site: Site, plan: Plan, modules: LocalModules
) -> None:
    source = READY.replace("await asyncio.sleep(0)", "pass") + "\nfrom amplifier_core.testing import MockTool\n"
    site.install("loop-r", {"amplifier.modules": {"loop-r": "ready_loop:mount"}}, {"ready_loop.py": source})
    modules.mounts["context-bad"] = modules.failing(ValueError("broken"))
    failing = AmplifierSession({"session": {"orchestrator": "loop-r", "context": "context-bad"}}, loader=modules)
    with pytest.raises(RuntimeError, match="broken"):
        await failing.initialize()
    session = AmplifierSession(plan, loader=modules)
    await session.initialize()
    assert "ready" not in session.coordinator.session_state


async def test_a_module_that_fails_when_all_is_mounted_is_told_and_stays(
    plan: Plan, modules: LocalModules, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    async def failing(coordinator: ModuleCoordinator) -> None:
        raise ValueError("not ready")

    async def listening(coordinator: ModuleCoordinator) -> None:
        coordinator.hooks.register(
            "module:on_session_ready_failed", lambda event, data: told.append(f"{data['module_id']}: {data['error']}")
        )

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        modules.enqueue_on_session_ready("hooks-bad", failing)
        modules.enqueue_on_session_ready("hooks-late", listening)

    modules.mounts["hooks-both"] = mount
    plan["hooks"].append({"module": "hooks-both"})
    session = AmplifierSession(plan, loader=modules)
    await session.initialize()
    assert told == ["hooks-bad: not ready"]
    assert caplog.messages == ["on_session_ready of module 'hooks-bad' failed: not ready"]
    assert (session.initialized, session.load_failures) == (True, [])


# providers of which there are several


def providers_of(session: AmplifierSession) -> dict[str, Any]:
    return {name: provider.config for name, provider in session.coordinator.get("providers").items()}


async def test_instances_of_one_provider_are_mounted_under_their_own_names(plan: Plan, modules: LocalModules) -> None:
    plan["providers"] = [
        {"module": "provider-echo", "config": {"n": 0}},
        {"module": "provider-echo", "instance_id": "fast", "config": {"n": 1}},
        {"module": "provider-echo", "instance_id": "slow", "config": {"n": 2}},
    ]
    async with AmplifierSession(plan, loader=modules) as session:
        assert providers_of(session) == {"echo": {"n": 0}, "fast": {"n": 1}, "slow": {"n": 2}}
        assert list(providers_of(session)) == ["echo", "fast", "slow"]


async def test_an_instance_may_bear_the_module_s_own_name(plan: Plan, modules: LocalModules) -> None:
    plan["providers"] = [
        {"module": "provider-echo", "instance_id": "fast", "config": {"n": 1}},
        {"module": "provider-echo", "instance_id": "echo", "config": {"n": 2}},
    ]
    async with AmplifierSession(plan, loader=modules) as session:
        assert providers_of(session) == {"fast": {"n": 1}, "echo": {"n": 2}}


async def test_only_one_instance_may_go_without_a_name(plan: Plan, modules: LocalModules) -> None:
    plan["providers"] = [{"module": "provider-echo"}, {"module": "provider-echo"}]
    with pytest.raises(
        ValueError,
        match="Multi-instance providers require explicit 'instance_id' on each entry but one: 'provider-echo' has 2",
    ):
        await AmplifierSession(plan, loader=modules).initialize()
    assert modules.undone == []


@pytest.mark.parametrize("instance", [None, "second"])
async def test_a_provider_that_fails_half_mounted_leaves_nothing_and_takes_nothing_along(
    plan: Plan, modules: LocalModules, instance: str | None
) -> None:
    good = modules.mounts["provider-echo"]

    async def half(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await good(coordinator, config)
        if config.get("fails"):
            raise OSError("no key")

    modules.mounts["provider-echo"] = modules.mounts["provider-other"] = half
    second = {"module": "provider-other", "config": {"fails": True}}
    if instance is not None:
        second |= {"module": "provider-echo", "instance_id": instance}
    plan["providers"] = [{"module": "provider-echo", "config": {"n": 1}}, second]
    async with AmplifierSession(plan, loader=modules) as session:
        assert providers_of(session) == {"echo": {"n": 1}}
        assert [failure.error for failure in session.load_failures] == ["no key"]


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
    modules.mounts["tool-own"] = noting(order, "tool", "tools", MockTool())
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
