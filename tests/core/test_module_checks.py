"""The checks of tools and of modules of hooks, on some that break the contract; and the trigger of one function."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import TriggerConfigError
from amplifier_core.models import HookResult, ToolResult
from amplifier_core.polling import PollingTrigger
from amplifier_core.testing import MockCoordinator, VirtualClock, check_hooks, check_tool, check_trigger
from amplifier_core.triggers import TriggerContext, TriggerEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

INPUT = {"text": "two words"}
_kept: list[Any] = []


@pytest.fixture(autouse=True)
async def _end_what_they_left() -> AsyncIterator[None]:
    yield
    for each in _kept:
        each.cancel() if isinstance(each, asyncio.Task) else each.set()
    await asyncio.sleep(0)
    _kept.clear()


class Words:
    """A tool that keeps the contract."""

    name, description = "words", "Count words."

    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def execute(self, input: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        if "text" not in input:
            return ToolResult(success=False, error={"message": "'text' is missing"})
        return ToolResult(output=len(input["text"].split()))


class Nameless(Words):
    name = " "


class WithoutProperty(Words):
    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {}, "required": ["text"]}


class NotJson(Words):
    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "default": object()}


class Plain(Words):
    def execute(self, input: dict[str, Any]) -> Any:  # type: ignore[override]
        return ToolResult(output=1)


class Raises(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        return ToolResult(output=len(input["text"]))


class ReturnsText(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        return "2"


class TakesAway(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        return ToolResult(output=len(input.pop("text", "")), success=True)


class AcceptsNothing(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        return ToolResult(output=len(input.get("text", "")))


class Blocks(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        time.sleep(1.5)
        return await super().execute(input)


class LeavesATask(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        _kept.append(asyncio.create_task(self.work()))
        return await super().execute(input)

    async def work(self) -> None:
        await asyncio.Event().wait()


class LeavesAThread(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        _kept.append(threading.Event())
        threading.Thread(target=_kept[-1].wait, name="worker-of-words").start()
        return await super().execute(input)


class SwallowsCancellation(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return ToolResult(output="all the same")
        return await super().execute(input)


class NeverEnds(Words):
    async def execute(self, input: dict[str, Any]) -> Any:
        await asyncio.Event().wait()


BROKEN_TOOLS: list[tuple[type[Words], str]] = [
    (Nameless, "a tool's name must be a text, not ' '"),
    (WithoutProperty, "input_schema requires what its properties do not have: text"),
    (NotJson, "input_schema must be JSON: Object of type object is not JSON serializable"),
    (Plain, "a tool must have `async def execute"),
    (Raises, r"execute\(\{\}\) must return a result with success=False; it raised KeyError: 'text'"),
    (ReturnsText, "execute must return a ToolResult, not str"),
    (TakesAway, "execute must not change its input"),
    (AcceptsNothing, r"execute\(\{\}\) must fail: the schema requires text"),
    (
        Blocks,
        r"must not block the event loop; it did for \d\.\d s \(test_module_checks.py, line \d+\): await",
    ),
    (LeavesATask, "execute must leave no task running; it left LeavesATask.work"),
    (LeavesAThread, "execute must leave no thread running; it left worker-of-words"),
    (SwallowsCancellation, "a cancelled call must raise CancelledError: catch Exception, never BaseException"),
    (NeverEnds, "execute must end; it did not within 0.2 s"),
]


async def test_a_tool_that_keeps_the_contract_passes() -> None:
    result = await check_tool(Words(), INPUT)
    assert result.output == 2


@pytest.mark.parametrize(("tool", "rule"), BROKEN_TOOLS, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_tool_that_breaks_a_rule_is_told_which(tool: type[Words], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check_tool(tool(), INPUT, patience=0.2 if tool is NeverEnds else 10)


def mounting(handler: Callable[..., Any], *, forgets: bool = False) -> Callable[..., Any]:
    async def mount(coordinator: MockCoordinator, config: dict[str, Any]) -> Callable[[], None]:
        undo = coordinator.hooks.register("tool:pre", handler, name="watching")
        return (lambda: None) if forgets else undo

    return mount


async def watch(event: str, data: dict[str, Any]) -> HookResult:
    return HookResult()


async def raises(event: str, data: dict[str, Any]) -> HookResult:
    raise KeyError("size")


async def says_yes(event: str, data: dict[str, Any]) -> Any:
    return True


async def takes_one(event: str) -> HookResult:
    return HookResult()


def is_plain(event: str, data: dict[str, Any]) -> None:
    return None


async def test_hooks_that_keep_the_contract_pass() -> None:
    await check_hooks(mounting(watch))
    await check_hooks(mounting(is_plain))


@pytest.mark.parametrize(
    ("handler", "rule"),
    [
        (raises, "the handler watching of tool:pre must not raise; it raised KeyError: 'size'"),
        (says_yes, "must return a HookResult, or None to go on, not bool"),
        (takes_one, r"must take \(event, data\)"),
    ],
)
async def test_a_handler_that_breaks_a_rule_is_told_which(handler: Callable[..., Any], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check_hooks(mounting(handler))


async def test_a_clean_up_must_unregister() -> None:
    with pytest.raises(AssertionError, match="the clean-up must unregister every handler; it left watching"):
        await check_hooks(mounting(watch, forgets=True))


class Lines(PollingTrigger):
    name = "trigger-lines"
    defaults = {"lines": [], "seconds": 5.0}  # noqa: RUF012 - as an author writes it

    async def poll(self) -> AsyncIterator[TriggerEvent]:
        for number in range(self.state.get("seen", 0), len(self.config["lines"])):
            yield self.event(str(number), {"line": self.config["lines"][number]}, {"seen": number + 1})


async def test_a_trigger_of_one_function_keeps_the_contract() -> None:
    clock, lines = VirtualClock(), list[str]()

    async def write() -> None:
        lines.append(f"line {len(lines)}")
        await clock.advance(5)

    class Shared(Lines):
        defaults = {"lines": lines, "seconds": 5.0}  # noqa: RUF012

    context = TriggerContext("tests/lines#0", clock=clock)
    events = await check_trigger(Shared, {}, provoke=write, context=context)
    assert [event.data["line"] for event in events] == ["line 0", "line 1"]
    assert events[0].timestamp < events[1].timestamp


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"line": []}, "line: unknown key; did you mean 'lines'?"),
        ({"colour": 1}, "colour: unknown key; known are lines, seconds"),
        ({"lines": "a"}, "lines: must be a list"),
        ({"seconds": True}, "seconds: must be a number"),
        ({"seconds": 0}, "seconds: must be more than 0"),
    ],
)
async def test_a_wrong_configuration_of_it_is_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(TriggerConfigError) as told:
        Lines().configure(config)
    assert str(told.value) == f"trigger-lines: {message}"


async def test_a_trigger_without_a_poll_says_what_it_needs() -> None:
    class Empty(PollingTrigger):
        name = "trigger-empty"

    with pytest.raises(NotImplementedError, match="Empty needs: async def poll"):
        Empty().poll()
