"""How a session mounts its modules, and what a failing one costs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import NoProviderMounted, UnknownName
from amplifier_core.loader import ModuleValidationError
from amplifier_core.mounting import LoadFailure
from amplifier_core.raised import find_place
from amplifier_core.session import AmplifierSession
from amplifier_core.testing import MockContextManager, MockTool, ScriptedOrchestrator

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.coordinator import ModuleCoordinator
    from tests.core.conftest import LocalModules, Site

Plan = dict[str, Any]


# mounting


async def test_modules_are_mounted_in_order_and_told_when_all_are(plan: Plan, modules: LocalModules) -> None:
    order: list[str] = []

    async def ready(coordinator: ModuleCoordinator) -> None:
        order.append(f"ready with {sorted(coordinator.get('tools'))}")

    async def mount_early(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        order.append("early-hook")
        modules.enqueue_on_session_ready("early-hook", ready)

    for kind, point in [("context", "context"), ("orchestrator", "orchestrator")]:
        modules.mounts[kind] = modules.noting(order, kind, point, MockContextManager())
    for name in ("tool-b", "tool-a"):
        modules.mounts[name] = modules.noting(order, name, "tools", MockTool(name))
    modules.mounts |= {
        "provider-p": modules.noting(order, "p"),
        "early": mount_early,
        "late": modules.noting(order, "late-hook"),
    }
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
    cause = OSError("no such device")
    modules.mounts["tool-bad"] = modules.failing(cause)
    modules.mounts["tool-good"] = modules.mounting("tools", MockTool("good"))
    plan["tools"] = [{"module": "tool-bad"}, {"module": "tool-good"}]
    async with AmplifierSession(plan, loader=modules, session_id="s") as session:
        text = f"OSError: no such device ({find_place(cause)})"
        assert re.search(r"/tests/core/conftest\.py:\d+\)$", text)
        assert session.load_failures == [LoadFailure("tool", "tool-bad", text)]
        assert list(session.coordinator.get("tools")) == ["good"]
        assert await session.execute("hi") == "hi!"
    [told] = modules.data_of("module:load_failed")
    assert told.pop("timestamp")
    assert told == {
        "module_type": "tool",
        "module_id": "tool-bad",
        "error": text,
        "reason_code": "unknown",
        "session_id": "s",
        "parent_id": None,
    }
    assert caplog.messages == [f"tool 'tool-bad' was not mounted: {text}"]


async def leave(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    if config.get("waits"):
        await asyncio.sleep(0)
    sys.exit(3)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_module_that_exits_at_its_mount_has_failed_and_says_where(
    plan: Plan, modules: LocalModules, caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    modules.mounts["tool-leaving"] = leave
    told = r"test_mounting.py, line \d+: it called exit\(3\), which a module may not do$"
    plan["tools"] = [{"module": "tool-leaving", "config": {"waits": waits}}]
    async with AmplifierSession(plan, loader=modules) as session:
        assert await session.execute("hi") == "hi!"
    [message] = caplog.messages
    assert re.match(f"tool 'tool-leaving' was not mounted: .*{told}", message)
    modules.mounts["loop-echo"] = leave
    with pytest.raises(RuntimeError, match=f"^Cannot initialize without orchestrator: .*{told}"):
        await AmplifierSession(plan, loader=modules).initialize()


@pytest.mark.parametrize("section", ["tools", "hooks", "providers"])
async def test_of_a_module_that_fails_half_way_nothing_stays_mounted(
    plan: Plan, modules: LocalModules, section: str
) -> None:
    undone: list[str] = []

    async def mount_half(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        coordinator.register_cleanup(lambda: undone.append("half"))
        await asyncio.gather(*(coordinator.mount("tools", MockTool(name)) for name in ("known", "half")))
        await coordinator.mount("orchestrator", ScriptedOrchestrator())
        coordinator.hooks.register("prompt:submit", never)
        coordinator.register_capability("half", True)
        coordinator.register_contributor("prompt.commands", "half", list)
        await coordinator.unmount("tools", "half")
        await coordinator.mount("tools", MockTool("half"))
        raise OSError("no such device")

    known = MockTool("known")
    modules.mounts |= {"known": modules.mounting("tools", known), "half": mount_half}
    plan["tools"] = [{"module": "known"}]
    plan[section] = [*plan[section], {"module": "half"}]
    async with AmplifierSession(plan, loader=modules) as session:
        [failure] = session.load_failures
        assert failure.error.startswith("OSError: no such device (")
        assert session.coordinator.get("tools") == {"known": known}
        assert session.coordinator.get_capability("half") is None
        assert not any(session.coordinator.channels.values())
        assert session.coordinator.hooks.list_handlers("prompt:submit") in ({"prompt:submit": ["recorder"]}, {})
        assert await session.execute("hi") == "hi!"
    assert undone == ["half"]


async def never(*_: Any) -> None:
    raise AssertionError("its module was not mounted")


async def test_a_module_that_fails_takes_nothing_back_that_an_earlier_one_mounts_meanwhile(
    plan: Plan, modules: LocalModules
) -> None:
    failing, listed = asyncio.Event(), asyncio.Event()

    async def begin(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], Any]:
        async def list_tools() -> None:
            await failing.wait()
            await coordinator.mount("tools", MockTool("late"))
            coordinator.hooks.register("late", never)
            listed.set()

        return asyncio.create_task(list_tools()).cancel

    async def fail(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await coordinator.mount("tools", MockTool("early"))
        failing.set()
        await listed.wait()
        raise OSError("no such device")

    modules.mounts |= {"tool-server": begin, "tool-bad": fail}
    plan["tools"] = [{"module": "tool-server"}, {"module": "tool-bad"}]
    async with AmplifierSession(plan, loader=modules) as session:
        assert list(session.coordinator.get("tools")) == ["late"]
        assert session.coordinator.hooks.list_handlers("late") == {"late": ["never"]}


async def test_a_tool_that_replaces_one_of_another_module_is_told_once_with_both(
    plan: Plan, modules: LocalModules, caplog: pytest.LogCaptureFixture
) -> None:
    async def mount_twice(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await coordinator.mount("tools", MockTool("write_file"))
        await coordinator.mount("tools", MockTool("write_file"))

    modules.mounts["tool-twice"] = mount_twice
    for module in ("tool-first", "tool-second"):
        modules.mounts[module] = modules.mounting("tools", MockTool("read_file"))
    plan["tools"] = [{"module": "tool-twice"}, {"module": "tool-first"}, {"module": "tool-second"}]
    for _ in range(2):
        async with AmplifierSession(plan, loader=modules):
            pass
    assert caplog.messages == ["tool 'read_file' of module 'tool-first' is replaced by that of module 'tool-second'"]


async def test_a_module_that_fails_gives_back_what_it_has_taken_away(plan: Plan, modules: LocalModules) -> None:
    async def mount_half(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await coordinator.unmount("tools", "known")
        await coordinator.mount("tools", MockTool("known"))
        raise OSError("no such device")

    known = MockTool("known")
    modules.mounts |= {"known": modules.mounting("tools", known), "half": mount_half}
    plan["tools"] = [{"module": "known"}, {"module": "half"}]
    async with AmplifierSession(plan, loader=modules) as session:
        assert session.coordinator.get("tools") == {"known": known}


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
    with pytest.raises(RuntimeError, match=f"^{text}OSError: no such device ") as failure:
        await session.initialize()
    assert failure.value.__cause__ is cause
    assert modules.undone == (["orchestrator"] if section == "context" else [])
    assert not session.initialized
    await session.cleanup()
    assert modules.seen == []


async def test_an_unknown_orchestrator_is_named(plan: Plan, modules: LocalModules) -> None:
    plan["session"]["orchestrator"] = "loop-nobody-has"
    with pytest.raises(RuntimeError, match="unknown module 'loop-nobody-has'"):
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
        [failure] = session.load_failures
        assert failure.error.startswith("OSError: no key (")


async def test_a_provider_that_fails_to_mount_is_told_with_the_line_of_its_own_code_and_not_of_a_library(
    plan: Plan, modules: LocalModules
) -> None:
    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        json.loads(Path("/nonexistent/creds.json").read_text(encoding="utf-8"))

    modules.mounts["provider-echo"] = mount
    async with AmplifierSession(plan, loader=modules) as session:
        with pytest.raises(NoProviderMounted) as caught:
            await session.execute("hi")
    place = f"{__file__}:{mount.__code__.co_firstlineno + 1}"
    assert caught.value.causes == (
        f"provider-echo: FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent/creds.json' ({place})",
    )


async def test_a_module_that_python_cannot_parse_is_told_with_its_file(
    plan: Plan, modules: LocalModules, tmp_path: Path
) -> None:
    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        compile("def broken(:", str(tmp_path / "tool.py"), "exec")

    modules.mounts["provider-echo"] = mount
    async with AmplifierSession(plan, loader=modules) as session:
        told = [each.error for each in session.load_failures]
    assert told == [f"SyntaxError: invalid syntax ({tmp_path / 'tool.py'}:1)"]


async def test_a_refused_configuration_is_told_in_the_words_of_the_module_alone(
    plan: Plan, modules: LocalModules
) -> None:
    modules.mounts["provider-echo"] = modules.failing(ValueError("base_url: must be a URL"))
    async with AmplifierSession(plan, loader=modules) as session:
        assert [each.error for each in session.load_failures] == ["base_url: must be a URL"]
