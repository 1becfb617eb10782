"""What goes wrong in a session's life: it is said, the session stays usable or ends cleanly, and nothing is left."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from amplifier_core import coordinator as coordinator_module
from amplifier_core import events, time_limits
from amplifier_core.errors import PluginError
from amplifier_core.loader import ModuleLoader
from amplifier_core.mounting import LoadFailure, Mounting
from amplifier_core.raised import find_origin
from amplifier_core.session import AmplifierSession


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (None, "Configuration is required"),
        ({}, "Configuration is required"),
        ("a plan", "Configuration must be a mapping, not str"),
        ({"session": []}, "Configuration must specify session.orchestrator"),
        ({"session": {"context": "c"}}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": "o"}}, "Configuration must specify session.context"),
        ({"session": {"orchestrator": "o", "context": ""}}, "Configuration must specify session.context"),
    ],
)
def test_a_config_that_is_missing_or_mistyped_is_refused_with_the_published_texts(config: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        AmplifierSession(config)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("tool-x", "an entry must be a mapping with 'module', not str"),
        ({}, "the entry has no 'module'"),
        ({"module": "tool-x", "config": [1]}, "its 'config' must be a mapping, not list"),
    ],
)
async def test_a_mistyped_entry_is_a_module_that_failed(plan: Any, modules: Any, entry: Any, error: str) -> None:
    modules.mounts["tool-x"] = modules.mounting("tools", object(), "x")
    async with AmplifierSession({**plan, "tools": [entry]}, loader=modules) as session:
        assert [failure.error for failure in session.load_failures] == [error]
        assert await session.execute("on") == "on!"


async def test_a_module_that_is_listed_twice_is_mounted_once(plan: Any, modules: Any) -> None:
    order: list[str] = []
    modules.mounts["tool-x"] = modules.noting(order, "x", "tools", object())
    plan["tools"] = [{"module": "tool-x"}, {"module": "tool-x"}]
    async with AmplifierSession(plan, loader=modules) as session:
        assert order == ["x"]
        assert session.load_failures == [LoadFailure("tool", "tool-x", "it is listed twice; its first entry was taken")]


async def test_strict_makes_any_module_that_fails_fatal_and_undoes_the_mounts(plan: Any, modules: Any) -> None:
    cause = OSError("no such device")
    modules.mounts["tool-good"] = modules.mounting("tools", object(), "good")
    modules.mounts["tool-bad"] = modules.failing(cause)
    plan["tools"] = [{"module": "tool-good"}, {"module": "tool-bad"}]
    for session, how in (
        (AmplifierSession(plan, loader=modules, strict=True), {}),
        (AmplifierSession(plan, loader=modules), {"strict": True}),
    ):
        modules.undone.clear()
        with pytest.raises(
            RuntimeError, match="^Cannot initialize without tool 'tool-bad': OSError: no such device "
        ) as no:
            await session.initialize(**how)
        assert no.value.__cause__ is cause
        assert "good" in modules.undone
        assert not session.initialized


async def test_a_mount_that_never_returns_is_given_up_after_its_time(plan: Any, modules: Any) -> None:
    cancelled: list[str] = []

    async def never(coordinator: Any, config: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("tool-slow")
            raise

    modules.mounts["tool-slow"] = never
    plan["session"]["mount_timeout"] = 0.01
    async with AmplifierSession({**plan, "tools": [{"module": "tool-slow"}]}, loader=modules) as session:
        assert session.load_failures == [LoadFailure("tool", "tool-slow", "its mount took longer than 0.01 s")]
        assert cancelled == ["tool-slow"]
    modules.mounts["loop-echo"] = never
    with pytest.raises(RuntimeError, match="Cannot initialize without orchestrator: its mount took longer than 0.01 s"):
        await AmplifierSession(plan, loader=modules).initialize()


async def never(*_: Any) -> None:
    await asyncio.Event().wait()


async def test_the_log_names_a_mount_that_takes_long(
    plan: Any, modules: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "NOTICE_AFTER", 0.01)
    modules.mounts["tool-slow"] = never
    plan["session"]["mount_timeout"] = 0.05
    async with AmplifierSession({**plan, "tools": [{"module": "tool-slow"}]}, session_id="s", loader=modules):
        pass
    assert caplog.messages == [
        "waiting for module 'tool-slow' of session s: its mount is given up after 0.05 s",
        "tool 'tool-slow' was not mounted: its mount took longer than 0.05 s",
    ]


async def test_a_module_that_never_gets_ready_is_given_up_after_its_time(
    plan: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plan["session"]["mount_timeout"] = 0.01
    loader = ModuleLoader()
    session = AmplifierSession(plan, loader=loader)
    mounting = Mounting(session.coordinator, loader, session.config)
    mounting._ready += [("hooks-slow", never), ("hooks-leaving", cancel_itself), ("hooks-gone", leave)]
    told = await mounting.make_ready()
    assert [(data["module_id"], data["error"].partition(": ")[2] or data["error"]) for _, data in told] == [
        ("hooks-slow", "its on_session_ready took longer than 0.01 s"),
        ("hooks-leaving", "it raised CancelledError, and nobody has cancelled its work"),
        ("hooks-gone", "it called exit(3), which a module may not do"),
    ]
    await session.cleanup()


async def ignore_cancellations(*_: Any) -> None:
    task = asyncio.current_task()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert asyncio.current_task() is task


async def ignore_everything(*_: Any) -> None:
    for _ in range(3):  # its cancellation, its end, and the garbage collection
        try:
            await asyncio.Event().wait()
        except BaseException:
            continue


@pytest.mark.parametrize("module", [ignore_cancellations, ignore_everything])
async def test_a_module_that_ignores_its_cancellation_is_given_up_in_its_mount_and_its_clean_up(
    module: Any, plan: Any, modules: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "CLEANUP_TIME_LIMIT", 0.01)
    monkeypatch.setattr(time_limits, "GRACE", 0.01)

    async def mount(coordinator: Any, config: Any) -> Any:
        return module

    modules.mounts |= {"tool-stuck": module, "tool-staying": mount}
    plan["session"]["mount_timeout"] = 0.01
    tools = [{"module": "tool-stuck"}, {"module": "tool-staying"}]
    async with AmplifierSession({**plan, "tools": tools}, session_id="s", loader=modules):
        pass
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
    assert caplog.messages == [
        "tool 'tool-stuck' was not mounted: its mount took longer than 0.01 s",
        "a clean-up of session s, module 'tool-staying', failed: TimeoutError: its clean-up took longer than 0.01 s",
    ]


async def test_a_module_that_is_cancelled_has_its_time_to_end(
    plan: Any, modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def mount(coordinator: Any, config: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("orderly")

    modules.mounts["tool-slow"] = mount
    plan["session"]["mount_timeout"] = 0.01
    async with AmplifierSession({**plan, "tools": [{"module": "tool-slow"}]}, loader=modules) as session:
        assert [each.error for each in session.load_failures] == ["its mount took longer than 0.01 s"]
    assert ended == ["orderly"]


async def leave(*_: Any) -> None:
    raise SystemExit(3)


async def test_a_clean_up_of_a_module_that_never_returns_is_given_up_after_its_time(
    plan: Any, modules: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "CLEANUP_TIME_LIMIT", 0.05)
    monkeypatch.setattr(time_limits, "NOTICE_AFTER", 0.01)
    undone: list[str] = []

    async def mount(coordinator: Any, config: Any) -> Any:
        coordinator.register_cleanup(lambda: undone.append("first"))
        coordinator.register_cleanup(leave)
        return never

    modules.mounts["tool-stuck"] = mount
    async with AmplifierSession({**plan, "tools": [{"module": "tool-stuck"}]}, session_id="s", loader=modules):
        pass
    assert undone == ["first"]
    waits, late, left = caplog.messages
    assert waits == "waiting for module 'tool-stuck' of session s: its clean-up is given up after 0.05 s"
    assert late == (
        "a clean-up of session s, module 'tool-stuck', failed: TimeoutError: its clean-up took longer than 0.05 s"
    )
    assert re.match("a clean-up of session s, module 'tool-stuck', failed: PluginError: .*called exit", left)


async def test_a_clean_up_of_the_program_takes_the_time_it_needs(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "CLEANUP_TIME_LIMIT", 0.0)
    ended = []

    async def end() -> None:
        await asyncio.sleep(0.01)
        ended.append(True)

    session = AmplifierSession(plan)
    session.coordinator.register_cleanup(end)
    await session.cleanup()
    assert ended


async def cancel_itself(*_: Any, **named: Any) -> str:
    waiting = asyncio.ensure_future(asyncio.Event().wait())
    waiting.cancel()
    await waiting
    return "never"


async def test_a_module_that_raises_a_cancellation_has_failed(plan: Any, modules: Any) -> None:
    class Ending:
        execute = staticmethod(cancel_itself)

    modules.mounts["loop-echo"] = modules.mounting("orchestrator", Ending())
    async with AmplifierSession(plan, loader=modules) as session:
        with pytest.raises(
            PluginError, match="^.*test_session_faults.py, line [0-9]+: it raised CancelledError"
        ) as told:
            await session.execute("on")
        assert (session.state, session.last_error) == ("failed", told.value)


async def test_so_has_one_that_raises_a_cancellation_at_its_mount(plan: Any, modules: Any) -> None:
    modules.mounts["tool-x"] = cancel_itself
    async with AmplifierSession({**plan, "tools": [{"module": "tool-x"}]}, loader=modules) as session:
        [failure] = session.load_failures
        assert "it raised CancelledError" in failure.error
    modules.mounts["loop-echo"] = cancel_itself
    with pytest.raises(RuntimeError, match="^Cannot initialize without orchestrator: "):
        await AmplifierSession(plan, loader=modules).initialize()


async def test_a_cancellation_of_the_session_stays_one(plan: Any, modules: Any) -> None:
    begun = asyncio.Event()

    class Waiting:
        async def execute(self, **kwargs: Any) -> str:
            begun.set()
            await asyncio.Event().wait()
            return "never"

    modules.mounts["loop-echo"] = modules.mounting("orchestrator", Waiting())
    async with AmplifierSession(plan, loader=modules) as session:
        running = asyncio.create_task(session.execute("on"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert session.state == "cancelled"


async def test_a_time_limit_of_the_modules_own_is_not_mistaken_for_the_kernels(plan: Any, modules: Any) -> None:
    modules.mounts["tool-x"] = modules.failing(TimeoutError("the server did not answer"))
    async with AmplifierSession({**plan, "tools": [{"module": "tool-x"}]}, loader=modules) as session:
        [failure] = session.load_failures
        assert failure.error.startswith("TimeoutError: the server did not answer (")


async def test_a_clean_up_that_fails_does_not_keep_the_others_from_running(
    plan: Any, modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("it is stuck")

    async def mount(coordinator: Any, config: Any) -> Callable[[], None]:
        return fail

    modules.mounts["tool-first"] = modules.mounting("tools", object(), "first")
    modules.mounts["tool-stuck"] = mount
    plan["tools"] = [{"module": "tool-first"}, {"module": "tool-stuck"}]
    async with AmplifierSession(plan, loader=modules):
        pass
    assert "first" in modules.undone
    assert "it is stuck" in caplog.text


class CountingLoader(ModuleLoader):
    """Counts its clean-ups, and fails in them if told so."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.cleanups = 0
        self.error = error

    def cleanup(self) -> None:
        self.cleanups += 1
        if self.error is not None:
            raise self.error


async def test_the_loader_is_cleaned_up_although_a_clean_up_of_a_module_was_cancelled(plan: Any) -> None:
    waits = asyncio.Event()

    async def wait() -> None:
        waits.set()
        await asyncio.Event().wait()

    loader = CountingLoader()
    session = AmplifierSession(plan, loader=loader)
    session.coordinator.register_cleanup(wait)
    ending = asyncio.ensure_future(session.cleanup())
    await waits.wait()
    ending.cancel("during a clean-up")
    with pytest.raises(asyncio.CancelledError, match="during a clean-up"):
        await ending
    await session.cleanup()
    assert loader.cleanups == 1


async def test_a_loader_is_cleaned_up_by_the_last_of_its_sessions(plan: Any, modules: Any) -> None:
    loader = CountingLoader()
    loader.load = modules.load  # type: ignore[method-assign]
    parent = AmplifierSession(plan, loader=loader)
    child = await parent.fork()
    await parent.initialize()
    await AmplifierSession(plan, loader=loader).cleanup()
    await parent.cleanup()
    assert loader.cleanups == 0
    await child.cleanup()
    assert loader.cleanups == 1


async def test_a_loader_that_fails_to_clean_up_is_logged(plan: Any, caplog: pytest.LogCaptureFixture) -> None:
    await AmplifierSession(plan, loader=CountingLoader(OSError("it is stuck"))).cleanup()
    assert caplog.messages == ["the clean-up of a module loader failed: OSError: it is stuck"]


@pytest.mark.parametrize("event", [events.PROMPT_SUBMIT, events.SESSION_START, events.SESSION_END])
async def test_a_hook_that_exits_ends_neither_the_session_nor_the_program(
    plan: Any, modules: Any, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave(event: str, data: dict[str, Any]) -> None:
        raise SystemExit(3)

    session = AmplifierSession(plan, loader=modules)
    await session.initialize()
    session.coordinator.hooks.register(event, leave)
    async with session:
        await session.execute("hello")
    assert {"orchestrator"} <= set(modules.undone)
    assert session.state == "completed"
    [told] = caplog.messages
    assert re.match(f"hook 'leave' failed on {event} and was skipped: .*: it called exit\\(3\\)", told)


async def test_a_hook_that_emits_its_own_event_ends_where_python_ends_it(
    plan: Any, modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with AmplifierSession(plan, loader=modules) as session:
        depth = 0

        async def again(event: str, data: dict[str, Any]) -> None:
            nonlocal depth
            depth += 1
            await session.coordinator.hooks.emit(event, data)

        session.coordinator.hooks.register("mirror", again)
        await session.coordinator.hooks.emit("mirror", {})
        assert depth > 50
        assert "RecursionError" in caplog.text
        assert await session.execute("on") == "on!"


STEPS = 14
"""More turns of the loop than the life below takes."""


@pytest.mark.parametrize("step", range(STEPS))
async def test_a_cancellation_during_any_await_leaves_nothing_behind(plan: Any, modules: Any, step: int) -> None:
    mounted: list[str] = []
    undone: list[str] = []

    def mounting(name: str, point: str, module: Any) -> Callable[..., Any]:
        async def mount(coordinator: Any, config: Any) -> Callable[..., Any]:
            await asyncio.sleep(0)
            await coordinator.mount(point, module, name)
            mounted.append(name)

            async def cleanup() -> None:
                undone.append(name)
                await asyncio.sleep(0)

            return cleanup

        return mount

    async def slow(event: str, data: dict[str, Any]) -> None:
        await asyncio.sleep(0)

    modules.mounts["tool-a"], modules.mounts["tool-b"] = (mounting(name, "tools", object()) for name in "ab")
    plan["tools"] = [{"module": "tool-a"}, {"module": "tool-b"}]
    session = AmplifierSession(plan, loader=modules)
    for event in (events.SESSION_START, events.PROMPT_SUBMIT, events.SESSION_END):
        session.coordinator.hooks.register(event, slow)
    tasks, path = asyncio.all_tasks(), list(sys.path)

    async def live() -> None:
        async with session:
            await session.execute("hello")

    life = asyncio.ensure_future(live())
    for _ in range(step):
        await asyncio.sleep(0)
    life.cancel()
    await asyncio.wait({life})
    await session.cleanup()

    assert sorted(undone) == sorted(mounted)
    assert asyncio.all_tasks() == tasks
    assert sys.path == path
    assert not modules._users
    if step == STEPS - 1:
        assert life.done() and not life.cancelled(), "the life was longer than the steps that were tried"


async def test_the_status_says_what_was_done(plan: Any, modules: Any) -> None:
    async with AmplifierSession(plan, loader=modules, session_id="s") as session:
        assert (session.status.status, session.status.total_messages, session.status.last_activity) == (
            "running",
            0,
            None,
        )
        await session.execute("hello")
        call = {"id": "c", "tool": "t", "arguments": {}}
        stamp = {"timestamp": "2026-01-01T00:00:00+00:00"}
        session.transcript.append({"role": "assistant", "content": "", "tool_calls": [call, {**call, "id": "d"}]})
        session.transcript.append({"role": "tool", "tool_call_id": "c", "content": "fine"})
        session.transcript.append({"role": "tool", "tool_call_id": "d", "content": "Error: no", "metadata": stamp})
        status = session.status
        assert (status.session_id, status.status, status.total_messages, status.ended_at) == ("s", "completed", 5, None)
        assert (status.tool_invocations, status.tool_successes, status.tool_failures) == (2, 1, 1)
        assert status.last_activity is not None
        assert status.last_activity.year == 2026
    assert session.status.ended_at is not None


async def test_the_status_keeps_the_last_error_and_the_caller_gets_it_as_it_was(plan: Any, modules: Any) -> None:
    cause = OSError("the line is dead")

    class Failing:
        async def execute(self, prompt: str, **kwargs: Any) -> str:
            raise LookupError("nobody answers") from cause

    modules.mounts["loop-echo"] = modules.mounting("orchestrator", Failing())
    async with AmplifierSession(plan, loader=modules) as session:
        with pytest.raises(LookupError, match="nobody answers") as caught:
            await session.execute("hello")
        assert caught.value.__cause__ is cause
        assert session.status.status == "failed"
        assert session.status.last_error == {"type": "LookupError", "message": "nobody answers"}


def write_module(folder: Path, name: str, helper: str = "") -> None:
    package = folder / f"amplifier-module-{name}" / f"amplifier_module_{name.replace('-', '_')}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "async def mount(coordinator, config):\n"
        f"    {f'import {helper}' if helper else 'pass'}\n"
        f"    await coordinator.mount('tools', object(), '{name}')\n"
    )
    if helper:
        (package.parent / f"{helper}.py").write_text("")


async def test_folders_of_the_environment_are_searched_and_leave_the_path_with_their_last_session(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: Any
) -> None:
    write_module(tmp_path, "tool-lonely", helper="lonely_helper")
    monkeypatch.setenv("AMPLIFIER_MODULES", f"{tmp_path / 'absent'}:{tmp_path}")
    monkeypatch.setattr(modules, "_search_paths", ModuleLoader()._search_paths)
    plan["tools"] = [{"module": "tool-lonely"}]
    before = list(sys.path)
    parent = AmplifierSession(plan, loader=modules, session_id="p")
    await parent.initialize()
    child = await parent.fork()
    folder = str(tmp_path / "amplifier-module-tool-lonely")
    try:
        assert list(parent.coordinator.get("tools")) == list(child.coordinator.get("tools")) == ["tool-lonely"]
        assert sys.path == [*before, folder]
        await parent.cleanup()
        assert sys.path == [*before, folder]
    finally:
        await child.cleanup()
        sys.modules.pop("lonely_helper", None)
    assert sys.path == before


async def test_two_loaders_of_one_folder_share_its_place_on_the_path(
    plan: Any, tmp_path: Path, modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module(tmp_path, "tool-shared")
    plan["tools"] = [{"module": "tool-shared"}]
    others = [type(modules)(), type(modules)()]
    before, folder = list(sys.path), str(tmp_path / "amplifier-module-tool-shared")
    for loader in others:
        loader._search_paths = [tmp_path]
    first, second = (AmplifierSession(plan, loader=loader) for loader in others)
    await first.initialize()
    await second.initialize()
    assert sys.path.count(folder) == 1
    await first.cleanup()
    assert sys.path.count(folder) == 1
    await second.cleanup()
    assert sys.path == before


async def test_a_module_is_imported_and_mounted_once_when_it_is_loaded(plan: Any, tmp_path: Path, modules: Any) -> None:
    (tmp_path / "amplifier-module-tool-counted" / "amplifier_module_tool_counted").mkdir(parents=True)
    source = tmp_path / "amplifier-module-tool-counted" / "amplifier_module_tool_counted" / "__init__.py"
    source.write_text(
        "mounts = []\n"
        "async def mount(coordinator, config):\n"
        "    mounts.append(config)\n"
        "    await coordinator.mount('tools', object(), 'counted')\n"
    )
    modules._search_paths = [tmp_path]
    async with AmplifierSession({**plan, "tools": [{"module": "tool-counted", "config": {"n": 1}}]}, loader=modules):
        assert sys.modules["amplifier_module_tool_counted"].mounts == [{"n": 1}]
    del sys.modules["amplifier_module_tool_counted"]


class Answering:
    """An orchestrator of an older contract; `answer` is what its turn returns."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def execute(self, prompt: str, **kwargs: Any) -> Any:
        return self._answer


class Older(Answering):
    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any) -> Any:  # type: ignore[override]  # an author may
        return self._answer


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        (Answering(None), "orchestrator 'loop-odd' must answer with text, not with NoneType"),
        (Answering({}), "orchestrator 'loop-odd' must answer with text, not with dict"),
        (Older("x"), "got an unexpected keyword argument 'coordinator'"),
    ],
)
async def test_an_orchestrator_with_another_contract_fails_its_turn_and_is_named_with_its_place(
    plan: Any, modules: Any, loop: Any, told: str
) -> None:
    modules.mounts["loop-odd"] = modules.mounting("orchestrator", loop)
    plan["session"]["orchestrator"] = {"module": "loop-odd"}
    async with AmplifierSession(plan, loader=modules) as session:
        with pytest.raises(TypeError, match=told) as raised:
            await session.execute("on")
        assert session.state == "failed"
    title, place = find_origin(raised.value)
    assert place == f"{__file__}:{type(loop).execute.__code__.co_firstlineno}"
    assert title == ("orchestrator 'loop-odd'" if isinstance(loop, Older) else "")


async def test_a_loader_that_mounts_nothing_leaves_room_for_the_doubles_of_a_program(plan: Any, modules: Any) -> None:
    session = AmplifierSession(plan, loader=modules)
    session.loader.load = AsyncMock(return_value=AsyncMock(return_value=None))  # type: ignore[method-assign]
    await session.initialize()
    mounted = session.coordinator.mount_points
    mounted["providers"] = {"double": object()}
    with pytest.raises(RuntimeError, match="^No orchestrator module mounted$"):
        await session.execute("on")
    mounted["orchestrator"] = Answering("done")
    with pytest.raises(RuntimeError, match="^No context manager mounted$"):
        await session.execute("on")
    mounted["context"] = object()
    assert await session.execute("on") == "done"


@pytest.mark.parametrize("messages", [None, ["hello"], 5])
async def test_a_context_that_returns_no_messages_is_told_with_its_place(
    plan: Any, modules: Any, messages: Any
) -> None:
    class Odd:
        async def get_messages(self) -> Any:
            return messages

    modules.mounts["context-odd"] = modules.mounting("context", Odd())
    plan["session"]["context"] = {"module": "context-odd"}
    async with AmplifierSession(plan, loader=modules) as session:
        kind = type(messages).__name__
        with pytest.raises(TypeError, match=f"the context manager must return a list of messages, not {kind}") as no:
            await session.history()
    assert find_origin(no.value)[1].startswith(f"{__file__}:")
