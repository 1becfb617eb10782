"""What modules are mounted on, and how they find each other."""

from __future__ import annotations

import asyncio
import enum
import functools
import re
import signal
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.testing import MockTool

if TYPE_CHECKING:
    from collections.abc import Callable

SINGLE = ("orchestrator", "context", "module-source-resolver")
MANY = ("providers", "tools", "triggers")


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator(session_id="s", parent_id="p")


# mounting


@pytest.mark.parametrize("point", SINGLE)
async def test_a_point_for_one_module_holds_the_last_one_mounted(coordinator: ModuleCoordinator, point: str) -> None:
    assert coordinator.get(point) is None
    first, second = object(), object()
    await coordinator.mount(point, first)
    await coordinator.mount(point, second, name="ignored")
    assert coordinator.get(point) is second
    await coordinator.unmount(point)
    assert coordinator.get(point) is None


@pytest.mark.parametrize("point", MANY)
async def test_a_point_for_many_modules_holds_each_by_its_name(coordinator: ModuleCoordinator, point: str) -> None:
    assert coordinator.get(point) == {}
    own, other = MockTool("own"), MockTool("own")
    await coordinator.mount(point, own)
    await coordinator.mount(point, other, name="other")
    assert coordinator.get(point) == {"own": own, "other": other}
    assert coordinator.get(point, "other") is other
    assert coordinator.get(point, "absent") is None
    await coordinator.unmount(point, "own")
    await coordinator.unmount(point, "absent")
    assert coordinator.get(point) == {"other": other}


@pytest.mark.parametrize("point", MANY)
async def test_a_point_for_many_modules_gives_up_none_of_them_without_a_name(
    coordinator: ModuleCoordinator, point: str
) -> None:
    tool = MockTool("own")
    await coordinator.mount(point, tool)
    with pytest.raises(ValueError, match=f"^Name required to unmount from {point}$"):
        await coordinator.unmount(point)
    assert coordinator.get(point) == {"own": tool}


@pytest.mark.parametrize("point", ["providers", "tools"])
async def test_a_module_without_a_name_needs_one(coordinator: ModuleCoordinator, point: str) -> None:
    with pytest.raises(ValueError, match=f"^Name required for {point}$"):
        await coordinator.mount(point, object())


async def test_hooks_are_registered_and_not_mounted(coordinator: ModuleCoordinator) -> None:
    with pytest.raises(ValueError, match="^Hooks should be registered directly with the HookRegistry$"):
        await coordinator.mount("hooks", object())
    assert coordinator.get("hooks") is coordinator.hooks
    await coordinator.unmount("hooks")
    assert coordinator.get("hooks") is coordinator.hooks


async def test_a_trigger_mounts_itself_under_the_name_of_its_class(coordinator: ModuleCoordinator) -> None:
    class TickTrigger:
        pass

    trigger = TickTrigger()
    await coordinator.mount("trigger", trigger)
    await coordinator.mount("triggers", trigger, name="own")
    assert coordinator.get("triggers") == {"TickTrigger": trigger, "own": trigger}


async def test_a_mount_point_that_does_not_exist_is_named(coordinator: ModuleCoordinator) -> None:
    with pytest.raises(ValueError, match="^Unknown mount point: agent$"):
        await coordinator.mount("agent", object())
    with pytest.raises(ValueError, match="^Unknown mount point: agent$"):
        await coordinator.unmount("agent")
    with pytest.raises(ValueError, match="^Unknown mount point: agent$"):
        coordinator.get("agent")


async def test_what_is_mounted_can_be_listed(coordinator: ModuleCoordinator) -> None:
    await coordinator.mount("context", object())
    await coordinator.mount("tools", MockTool("write"))
    await coordinator.mount("tools", MockTool("read"))
    coordinator.register_capability("depth", 1)
    coordinator.register_contributor("events", "x", list)
    assert coordinator.to_dict() == {
        "session_id": "s",
        "parent_id": "p",
        "mounted": {
            "orchestrator": False,
            "context": True,
            "module-source-resolver": False,
            "providers": [],
            "tools": ["read", "write"],
            "triggers": [],
            "hooks": True,
        },
        "capabilities": ["depth"],
        "channels": ["events"],
    }


def test_a_module_may_set_attributes_of_its_own(coordinator: ModuleCoordinator) -> None:
    coordinator.todo_state = ["milk"]  # type: ignore[attr-defined]
    coordinator._tool_dispatch_contexts = {}  # type: ignore[attr-defined]
    coordinator.session_state["goal"] = "done"
    assert vars(coordinator)["todo_state"] == ["milk"]
    assert vars(coordinator)["_tool_dispatch_contexts"] == {}
    assert ModuleCoordinator().session_state == {}


# capabilities and contributions


def test_the_last_offer_of_a_capability_wins_and_an_absent_one_is_none(coordinator: ModuleCoordinator) -> None:
    coordinator.register_capability("session.working_dir", "/old")
    coordinator.register_capability("session.working_dir", "/new")
    assert coordinator.get_capability("session.working_dir") == "/new"
    assert coordinator.get_capability("absent") is None


def contributing(value: Any) -> Callable[[], Any]:
    async def contribute() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return contribute


async def test_contributions_come_in_the_order_of_registration_without_none(coordinator: ModuleCoordinator) -> None:
    for name, callback in [("a", lambda: 1), ("b", contributing(2)), ("c", lambda: None), ("d", contributing([]))]:
        coordinator.register_contributor("channel", name, callback)
    coordinator.register_contributor("another", "e", lambda: 9)
    assert await coordinator.collect_contributions("channel") == [1, 2, []]
    assert await coordinator.collect_contributions("nobody") == []


def test_a_channel_lists_the_name_and_the_callback_of_each_contributor(coordinator: ModuleCoordinator) -> None:
    coordinator.register_contributor("channel", "a", list)
    coordinator.register_contributor("channel", "b", dict)
    assert coordinator.channels == {"channel": [{"name": "a", "callback": list}, {"name": "b", "callback": dict}]}


async def test_a_contributor_that_fails_is_logged_and_the_rest_are_collected(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.register_contributor("channel", "bad", contributing(ValueError("broken")))
    coordinator.register_contributor("channel", "good", lambda: 1)
    assert await coordinator.collect_contributions("channel") == [1]
    assert [each.getMessage() for each in caplog.records] == ["contributor 'bad' to channel failed: broken"]


async def test_a_cancellation_ends_the_collection_with_what_was_gathered(coordinator: ModuleCoordinator) -> None:
    coordinator.register_contributor("channel", "before", lambda: 1)
    coordinator.register_contributor("channel", "cancelled", contributing(asyncio.CancelledError()))
    coordinator.register_contributor("channel", "after", lambda: 2)
    assert await coordinator.collect_contributions("channel") == [1]


# life


async def test_clean_ups_run_once_and_the_last_registered_first(coordinator: ModuleCoordinator) -> None:
    order: list[str] = []

    async def awaited() -> None:
        order.append("async")

    coordinator.register_cleanup(lambda: order.append("first"))
    coordinator.register_cleanup(awaited)
    coordinator.register_cleanup(lambda: order.append("last"))
    coordinator.register_cleanup(None)  # type: ignore[arg-type]
    await coordinator.cleanup()
    await coordinator.cleanup()
    assert order == ["last", "async", "first"]


async def test_a_clean_up_that_fails_is_logged_and_the_others_run(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[str] = []
    coordinator.register_cleanup(lambda: order.append("first"))
    coordinator.register_cleanup(contributing(ValueError("broken")))
    coordinator.register_cleanup(lambda: order.append("last"))
    await coordinator.cleanup()
    assert order == ["last", "first"]
    assert caplog.messages == ["a clean-up of session s failed: ValueError: broken"]


async def test_an_interrupt_during_clean_up_is_raised_when_all_have_run(coordinator: ModuleCoordinator) -> None:
    order: list[str] = []
    coordinator.register_cleanup(lambda: order.append("first"))
    coordinator.register_cleanup(contributing(KeyboardInterrupt("second to fail")))
    coordinator.register_cleanup(contributing(KeyboardInterrupt("first to fail")))
    with pytest.raises(KeyboardInterrupt, match="first to fail"):
        await coordinator.cleanup()
    assert order == ["first"]
    await coordinator.cleanup()


@pytest.mark.parametrize(
    ("error", "told"), [(SystemExit(3), r"called exit\(3\)"), (asyncio.CancelledError(), "raised CancelledError")]
)
async def test_a_clean_up_that_exits_or_cancels_itself_has_failed(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture, error: BaseException, told: str
) -> None:
    order: list[str] = []
    coordinator.register_cleanup(lambda: order.append("first"))
    coordinator.mounting = "tool-odd"
    coordinator.register_cleanup(contributing(error))
    await coordinator.cleanup()
    assert order == ["first"]
    assert re.search(f"session s, module 'tool-odd', failed: PluginError: .*: it {told}", caplog.text)


def leave(number: int, frame: object) -> None:
    sys.exit(7)


async def test_a_name_that_is_no_string_is_refused(coordinator: ModuleCoordinator) -> None:
    with pytest.raises(TypeError, match="^the name of a module at tools must be a string, not 7$"):
        await coordinator.mount("tools", MockTool(name=7))  # type: ignore[arg-type]  # an author may write it
    assert coordinator.get("tools") == {}


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("input_schema", "none", "input_schema must be a mapping, a JSON Schema, not str"),
        ("input_schema", ["path"], "input_schema must be a mapping, a JSON Schema, not list"),
        ("description", 7, "description must be a text, not int"),
        ("description", lambda self: "a forgotten property", "description must be a text, not function"),
    ],
)
async def test_a_tool_that_cannot_be_described_to_a_model_is_refused_with_its_name(
    coordinator: ModuleCoordinator, part: str, value: object, told: str
) -> None:
    tool = MockTool(name="odd")
    setattr(tool, part, value)
    with pytest.raises(TypeError, match=f"^tool 'odd': its {told}$"):
        await coordinator.mount("tools", tool)
    assert coordinator.get("tools") == {}


async def test_a_tool_that_makes_its_description_when_it_is_asked_for_is_not_asked_at_its_mount(
    coordinator: ModuleCoordinator,
) -> None:
    class Asked:
        def __get__(self, tool: object, kind: type) -> str:
            raise AssertionError("it was asked for")

    class Lazy:
        name = "lazy"
        description = Asked()

        @property
        def input_schema(self) -> dict[str, Any]:
            raise AssertionError("it was asked for")

    await coordinator.mount("tools", Lazy())
    await coordinator.mount("tools", MagicMock(), name="mock")
    assert set(coordinator.get("tools")) == {"lazy", "mock"}


def leave_once(number: int, *rest: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(7)


class Leaving:
    def __call__(self, number: int, frame: object) -> None:
        sys.exit(7)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no SIGUSR1")
@pytest.mark.parametrize("handler", [leave, leave_once, Leaving(), Leaving().__call__, functools.partial(leave)])
async def test_an_exit_at_a_signal_during_clean_up_is_the_programs_own(
    coordinator: ModuleCoordinator, handler: Any
) -> None:
    order: list[str] = []
    coordinator.register_cleanup(lambda: order.append("first"))
    coordinator.register_cleanup(lambda: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(SystemExit, match="7"):
            await coordinator.cleanup()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert order == ["first"]


async def test_an_exit_below_code_that_no_signal_calls_is_the_modules(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(enum.Enum):
        ONE = 1

        @classmethod
        def _missing_(cls, value: object) -> None:
            sys.exit(5)

    coordinator.mounting = "tool-odd"
    coordinator.register_cleanup(lambda: Odd(9))
    await coordinator.cleanup()
    assert "called exit(5), which a module may not do" in caplog.text


async def test_a_clean_up_may_register_another(coordinator: ModuleCoordinator) -> None:
    order: list[str] = []
    coordinator.register_cleanup(lambda: coordinator.register_cleanup(lambda: order.append("late")))
    await coordinator.cleanup()
    assert order == ["late"]


async def test_a_request_to_cancel_tells_the_hooks_and_then_the_callbacks_once(coordinator: ModuleCoordinator) -> None:
    told: list[Any] = []

    async def callback() -> None:
        told.append("callback")

    coordinator.hooks.register("cancel:requested", lambda event, data: told.append(data["level"]))
    coordinator.cancellation.on_cancel(callback)
    await coordinator.request_cancel()
    await coordinator.request_cancel()
    assert told == ["graceful", "callback"]
    await coordinator.request_cancel(immediate=True)
    await coordinator.request_cancel()
    assert told == ["graceful", "callback", "immediate", "callback"]


async def test_a_request_to_cancel_says_which_tools_run(coordinator: ModuleCoordinator) -> None:
    seen: list[dict[str, Any]] = []
    coordinator.hooks.register("cancel:requested", lambda event, data: seen.append(data))
    coordinator.cancellation.register_tool_start("call-2", "bash")
    coordinator.cancellation.register_tool_start("call-1", "read")
    await coordinator.request_cancel()
    assert seen[0]["running_tools"] == ["call-1", "call-2"]
    assert seen[0]["running_tool_names"] == ["bash", "read"]
