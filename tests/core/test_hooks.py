"""Handlers of events: their order, what wins, what a failing one costs."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from ctypes import c_ulong, py_object, pythonapi
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import AsyncMock

import pytest

from amplifier_core import events
from amplifier_core.hooks import HookRegistry
from amplifier_core.models import HookResult

if TYPE_CHECKING:
    from collections.abc import Callable

Action = Literal["continue", "deny", "modify", "inject_context", "ask_user"]


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


def answering(result: Any, calls: list[str] | None = None, name: str = "") -> Callable[..., Any]:
    """Return an async handler that notes its name in `calls` and returns `result`, or raises it."""

    async def handler(event: str, data: dict[str, Any]) -> Any:
        if calls is not None:
            calls.append(name)
        if isinstance(result, BaseException):
            raise result
        return result

    return handler


def injecting(content: str, **fields: Any) -> Callable[..., Any]:
    return answering(HookResult(action="inject_context", context_injection=content, **fields))


# order


async def test_handlers_run_by_priority_and_equal_ones_in_the_order_they_came(hooks: HookRegistry) -> None:
    order: list[str] = []
    for name, priority in [("late", 50), ("first-of-equals", 0), ("second-of-equals", 0), ("early", -10), ("third", 0)]:
        hooks.register("e", answering(None, order, name), priority=priority, name=name)
    await hooks.emit("e", {})
    assert order == ["early", "first-of-equals", "second-of-equals", "third", "late"]
    assert hooks.list_handlers("e") == {"e": order}


async def test_a_handler_hears_only_its_event(hooks: HookRegistry) -> None:
    order: list[str] = []
    hooks.register("a", answering(None, order, "a"))
    hooks.on("b", answering(None, order, "b"))
    await hooks.emit("b", {})
    await hooks.emit("nobody-listens", {})
    assert order == ["b"]


async def test_a_handler_that_comes_while_an_event_runs_hears_the_next_one(hooks: HookRegistry) -> None:
    order: list[str] = []

    def handler(event: str, data: dict[str, Any]) -> None:
        order.append("first")
        hooks.register("e", answering(None, order, "second"))

    unregister = hooks.register("e", handler)
    await hooks.emit("e", {})
    unregister()
    await hooks.emit("e", {})
    assert order == ["first", "second"]


# what wins


PRECEDENCE: list[Action] = ["deny", "ask_user", "inject_context", "continue"]


@pytest.mark.parametrize("first", [*PRECEDENCE, "modify"])
@pytest.mark.parametrize("second", [*PRECEDENCE, "modify"])
async def test_the_stronger_answer_wins_whoever_gave_it_first(
    hooks: HookRegistry, first: Action, second: Action
) -> None:
    for action in (first, second):
        hooks.register("e", answering(HookResult(action=action, data={"by": action}, context_injection="text")))
    result = await hooks.emit("e", {})
    asked: list[Action] = ["continue" if action == "modify" else action for action in (first, second)]
    assert result.action == min(asked, key=PRECEDENCE.index)


async def test_a_denial_stops_the_handlers_after_it(hooks: HookRegistry) -> None:
    order: list[str] = []
    denial = HookResult(action="deny", reason="no")
    hooks.register("e", answering(HookResult(action="ask_user"), order, "asks"))
    hooks.register("e", answering(denial, order, "denies"))
    hooks.register("e", answering(None, order, "never"))
    assert await hooks.emit("e", {}) is denial
    assert order == ["asks", "denies"]


async def test_each_handler_sees_what_the_one_before_it_made_of_the_data(hooks: HookRegistry) -> None:
    seen: list[Any] = []

    def adding(number: int) -> Callable[..., HookResult]:
        def handler(event: str, data: dict[str, Any]) -> HookResult:
            seen.append(data["numbers"])
            return HookResult(action="modify", data={"numbers": [*data["numbers"], number]})

        return handler

    for number in (1, 2, 3):
        hooks.register("e", adding(number))
    result = await hooks.emit("e", {"numbers": []})
    assert seen == [[], [1], [1, 2]]
    assert (result.action, result.data) == ("continue", {"numbers": [1, 2, 3]})


async def test_a_change_without_data_changes_nothing(hooks: HookRegistry) -> None:
    hooks.register("e", answering(HookResult(action="modify", data={"n": 1})))
    hooks.register("e", answering(HookResult(action="modify", reason="why")))
    result = await hooks.emit("e", {"n": 0})
    assert (result.action, result.data, result.reason) == ("continue", {"n": 1}, "why")


async def test_a_message_for_the_user_survives_the_changes_after_it(hooks: HookRegistry) -> None:
    hooks.register("e", answering(HookResult(action="modify", data={"n": 1}, user_message="changed")))
    hooks.register("e", answering(HookResult(action="modify", data={"n": 2})))
    result = await hooks.emit("e", {"n": 0})
    assert (result.action, result.data, result.user_message) == ("continue", {"n": 2}, "changed")


async def test_the_first_question_wins(hooks: HookRegistry) -> None:
    for prompt in ("one?", "two?"):
        hooks.register("e", answering(HookResult(action="ask_user", approval_prompt=prompt)))
    assert (await hooks.emit("e", {})).approval_prompt == "one?"


@pytest.mark.parametrize("action", ["ask_user", "inject_context"])
async def test_a_change_is_kept_when_a_stronger_answer_wins(hooks: HookRegistry, action: Action) -> None:
    hooks.register("e", answering(HookResult(action="modify", data={"command": "ls"})))
    hooks.register("e", answering(HookResult(action=action, context_injection="text")))
    result = await hooks.emit("e", {"command": "rm -rf /"})
    assert (result.action, result.data) == (action, {"command": "ls"})


async def test_a_message_for_the_user_survives_when_nobody_wants_anything_else(hooks: HookRegistry) -> None:
    hooks.register("e", answering(HookResult(user_message="saved", user_message_level="warning")))
    hooks.register("e", answering(HookResult()))
    result = await hooks.emit("e", {"n": 1})
    assert (result.action, result.user_message, result.user_message_level) == ("continue", "saved", "warning")
    assert result.data is not None
    assert result.data["n"] == 1


# injections


async def test_injections_are_merged_and_each_is_kept_with_its_hook(hooks: HookRegistry) -> None:
    hooks.register("e", injecting("one", context_injection_role="user"), name="first")
    hooks.register("e", injecting("two", context_injection_role="assistant", ephemeral=True), name="second")
    hooks.register("e", injecting("three", append_to_last_tool_result=True), name="third")
    result = await hooks.emit("e", {"n": 1})
    assert result.context_injection == "one\n\ntwo\n\nthree"
    assert result.context_injection_role == "user"
    assert (result.ephemeral, result.append_to_last_tool_result) == (True, True)
    assert [each.model_dump() for each in result.context_injections] == [
        {"content": "one", "role": "user", "ephemeral": False, "append_to_last_tool_result": False} | by("first"),
        {"content": "two", "role": "assistant", "ephemeral": True, "append_to_last_tool_result": False} | by("second"),
        {"content": "three", "role": "system", "ephemeral": False, "append_to_last_tool_result": True} | by("third"),
    ]


def by(name: str) -> dict[str, str]:
    return {"hook_name": name, "event": "e"}


async def test_an_empty_injection_leaves_no_gap_between_the_others(hooks: HookRegistry) -> None:
    for content in ("one", "", "two"):
        hooks.register("e", injecting(content))
    assert (await hooks.emit("e", {})).context_injection == "one\n\ntwo"


async def test_merging_does_not_write_to_the_results_of_the_handlers(hooks: HookRegistry) -> None:
    own = HookResult(action="inject_context", context_injection="one")
    hooks.register("e", answering(own))
    hooks.register("e", injecting("two"))
    await hooks.emit("e", {})
    assert own == HookResult(action="inject_context", context_injection="one")


# kinds of handlers


class CallableHandler:
    def __init__(self, result: Any) -> None:
        self.result = result

    async def __call__(self, event: str, data: dict[str, Any]) -> Any:
        return self.result


def plain(event: str, data: dict[str, Any]) -> Any:
    return HookResult(action="deny", reason="r")


def given(result: Any, event: str, data: dict[str, Any]) -> Any:
    return result


@pytest.mark.parametrize(
    "handler",
    [
        plain,
        answering(HookResult(action="deny", reason="r")),
        answering({"action": "deny", "reason": "r"}),
        lambda event, data: {"action": "deny", "reason": "r"},
        CallableHandler({"action": "deny", "reason": "r"}),
        partial(given, {"action": "deny", "reason": "r"}),
        lambda event, data: answering(HookResult(action="deny", reason="r"))(event, data),
        CallableHandler({"action": "deny", "reason": "r"}).__call__,
        AsyncMock(return_value={"action": "deny", "reason": "r"}),
    ],
    ids=[
        "plain",
        "async",
        "async dict",
        "plain dict",
        "async object",
        "partial",
        "plain that returns a coroutine",
        "method",
        "double",
    ],
)
async def test_every_kind_of_handler_may_answer(hooks: HookRegistry, handler: Any) -> None:
    hooks.register("e", handler)
    assert await hooks.emit("e", {}) == HookResult(action="deny", reason="r")


@pytest.mark.parametrize("answer", [None, "text", 7, {}], ids=repr)
async def test_an_answer_that_says_nothing_continues(hooks: HookRegistry, answer: Any) -> None:
    hooks.register("e", answering(answer))
    result = await hooks.emit("e", {"n": 1})
    assert result.data is not None
    assert result == HookResult(data={"n": 1, "timestamp": result.data["timestamp"]})


async def test_a_result_of_a_class_derived_from_ours_counts(hooks: HookRegistry) -> None:
    class Own(HookResult):
        severity: int = 3

    hooks.register("e", answering(Own(action="deny")))
    result = await hooks.emit("e", {})
    assert isinstance(result, Own)
    assert result.severity == 3


# failures


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError("stray")], ids=repr)
@pytest.mark.parametrize("emit", ["emit", "emit_and_collect"])
async def test_a_failing_handler_is_logged_with_its_name_and_skipped(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, error: BaseException, emit: str
) -> None:
    order: list[str] = []
    bad = answering(error)
    hooks.register("e", bad, name="the-bad-one")
    hooks.register("e", answering(None, order, "next"), name="next")
    await getattr(hooks, emit)("e", {})
    assert order == ["next"]
    [told] = caplog.records
    line = bad.__code__.co_firstlineno + 4
    cause = f"{type(error).__name__}: {error} ({__file__}:{line})"
    if isinstance(error, asyncio.CancelledError):
        cause = f"{__file__}, line {line}: it raised CancelledError, and nobody has cancelled its work"
    assert (told.levelno, told.getMessage()) == (
        logging.ERROR,
        f"hook 'the-bad-one' failed on e and was skipped: {cause}",
    )


@pytest.mark.parametrize("answer", [{"action": "explode"}, {"approval_timeout": "soon"}], ids=repr)
async def test_an_answer_that_is_no_result_counts_as_a_failure(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, answer: dict[str, Any]
) -> None:
    hooks.register("e", answering(answer), name="confused")
    assert (await hooks.emit("e", {})).action == "continue"
    assert "hook 'confused' failed on e and was skipped: ValidationError" in caplog.text


@pytest.mark.parametrize("answer", [ValueError("broken"), asyncio.CancelledError("stray"), "deny"], ids=repr)
async def test_a_failing_guard_is_logged_as_what_it_does_it_refuses_the_call(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    hooks.register(events.TOOL_PRE, answering(answer), name="guard")
    assert (await hooks.emit(events.TOOL_PRE, {"tool_name": "bash"})).action == "deny"
    [record] = caplog.records
    assert record.getMessage().startswith("hook 'guard' failed on tool:pre and the call is refused: ")
    await hooks.emit_and_collect(events.TOOL_PRE, {"tool_name": "bash"})  # nobody acts on its answers
    assert "refused" not in "".join(each.getMessage() for each in caplog.records[1:])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("emit", ["emit", "emit_and_collect", "tell"])
async def test_a_handler_that_exits_is_skipped_and_ends_no_program(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, error: BaseException, emit: str
) -> None:
    def leave(event: str, data: dict[str, Any]) -> None:
        raise error

    hooks.register("e", leave)
    if emit == "tell":
        hooks.clear()
        hooks.observe({"e": leave}, name="leave")
        hooks.tell("e", {})
    else:
        await getattr(hooks, emit)("e", {})
    [told] = caplog.messages
    assert told.startswith(f"hook 'leave' failed on e and was skipped: {__file__}, line ")
    assert told.endswith("which a module may not do")


async def test_a_guard_that_exits_refuses_the_call(hooks: HookRegistry) -> None:
    hooks.register(events.TOOL_PRE, answering(SystemExit(4)), name="guard")
    refusal = await hooks.emit(events.TOOL_PRE, {"tool_name": "bash"})
    assert (refusal.action, "the guard 'guard' failed: " in str(refusal.reason)) == ("deny", True)
    assert "it called exit(4), which a module may not do" in str(refusal.reason)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_an_exit_at_a_signal_is_not_held_up_by_hooks(hooks: HookRegistry, error: type[BaseException]) -> None:
    def leave(number: int, frame: object) -> None:
        raise error

    async def interrupted(event: str, data: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)

    hooks.register("e", interrupted)
    before = signal.signal(signal.SIGINT, leave)
    try:
        with pytest.raises(error):
            await hooks.emit("e", {})
        if error is KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with pytest.raises(error):
                await hooks.emit("e", {})
    finally:
        signal.signal(signal.SIGINT, before)


def forgetful(number: int, frame: object) -> None:
    del number, frame
    raise KeyboardInterrupt


class Forgetful:
    def __call__(self, number: int, frame: object) -> None:
        forgetful(number, frame)
        del number, frame


def leaving(number: int, frame: object) -> None:
    del number, frame
    raise SystemExit(3)


@pytest.mark.parametrize(
    "handler",
    [
        signal.default_int_handler,
        partial(signal.default_int_handler),
        forgetful,
        partial(forgetful),
        Forgetful(),
        leaving,
    ],
)
async def test_any_signal_may_end_the_program_in_a_handler_of_events(hooks: HookRegistry, handler: Any) -> None:
    """The handler of Ctrl-C is another one then, as in `asyncio.run`."""

    def interrupted(event: str, data: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError

    hooks.register("e", interrupted)
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(SystemExit if handler is leaving else KeyboardInterrupt):
            await hooks.emit("e", {})
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


async def test_an_interrupt_without_a_raise_of_a_module_is_the_programs(hooks: HookRegistry) -> None:
    """A debugger, or a time limit, sends one to the thread; Python passes on the one of an inner `asyncio.run`."""

    def interrupted(event: str, data: dict[str, Any]) -> None:
        pythonapi.PyThreadState_SetAsyncExc(c_ulong(threading.get_ident()), py_object(KeyboardInterrupt))
        for _ in range(1_000_000):
            pass

    def passed_on(event: str, data: dict[str, Any]) -> None:
        exec("raise KeyboardInterrupt", {"__name__": "asyncio.runners"})

    def wrapped(event: str, data: dict[str, Any]) -> None:
        try:
            interrupted(event, data)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("in its place") from None

    def left(event: str, data: dict[str, Any]) -> None:
        try:
            interrupted(event, data)
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    for handler in (interrupted, passed_on, wrapped, left):
        remove = hooks.register("e", handler)
        with pytest.raises(SystemExit if handler is left else KeyboardInterrupt):
            await hooks.emit("e", {})
        remove()


@pytest.mark.parametrize("emit", ["emit", "emit_and_collect"])
async def test_a_task_that_is_cancelled_inside_a_handler_ends(hooks: HookRegistry, emit: str) -> None:
    inside = asyncio.Event()
    order: list[str] = []

    async def waiting(event: str, data: dict[str, Any]) -> None:
        inside.set()
        await asyncio.Event().wait()

    hooks.register("e", waiting)
    hooks.register("e", answering(None, order, "must not run"))
    kwargs = {"timeout": 60.0} if emit == "emit_and_collect" else {}
    task = asyncio.ensure_future(getattr(hooks, emit)("e", {}, **kwargs))
    await asyncio.wait_for(inside.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert order == []


@pytest.mark.parametrize("emit", ["emit", "emit_and_collect"])
async def test_a_handler_that_fails_over_a_cancellation_does_not_keep_it(hooks: HookRegistry, emit: str) -> None:
    inside = asyncio.Event()
    order: list[str] = []
    tasks: list[Any] = []

    async def failing(event: str, data: dict[str, Any]) -> None:
        tasks.append(asyncio.current_task())
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("the cleanup failed") from None

    hooks.register("e", failing)
    hooks.register("e", answering(None, order, "must not run"))
    kwargs = {"timeout": 60.0} if emit == "emit_and_collect" else {}
    task = asyncio.ensure_future(getattr(hooks, emit)("e", {}, **kwargs))
    await asyncio.wait_for(inside.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert order == []
    [inner] = tasks
    assert inner is task or isinstance(inner.exception(), ValueError)  # looked at: else it is logged at any time


@pytest.mark.parametrize("emit", ["emit", "emit_and_collect"])
async def test_a_failing_handler_that_cancels_the_task_ends_it_once(hooks: HookRegistry, emit: str) -> None:
    ended: list[str] = []

    def cancelling(event: str, data: dict[str, Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        raise ValueError("that is all")

    hooks.register("e", cancelling)

    async def work() -> None:
        try:
            await getattr(hooks, emit)("e", {})
        finally:
            await asyncio.sleep(0)
            ended.append("after an await")

    task = asyncio.ensure_future(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["after an await"]


@pytest.mark.parametrize("emit", ["emit", "emit_and_collect"])
async def test_the_end_of_a_cancelled_task_is_told_to_every_hook(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture, emit: str
) -> None:
    order: list[str] = []
    hooks.register("e", answering(asyncio.CancelledError("stray")), name="the-bad-one")
    hooks.register("e", answering(None, order, "next"))

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await getattr(hooks, emit)("e", {})

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert order == ["next"]
    assert "hook 'the-bad-one' failed on e and was skipped: " in caplog.text


# collecting


async def test_collecting_returns_the_data_of_every_result_that_has_any(hooks: HookRegistry) -> None:
    answers: list[Any] = [{"data": {"n": 1}}, None, HookResult(action="deny"), HookResult(data={"n": 2}), {"data": {}}]
    for answer in answers:
        hooks.register("e", answering(answer))
    hooks.register("e", lambda event, data: HookResult(data={"saw": data["given"]}))
    assert await hooks.emit_and_collect("e", {"given": 3}) == [{"n": 1}, {"n": 2}, {}, {"saw": 3}]
    assert await hooks.emit_and_collect("nobody", {}) == []


async def test_a_handler_that_exceeds_its_time_is_given_up_and_the_rest_are_collected(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def endless(event: str, data: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    hooks.register("e", endless, name="endless")
    hooks.register("e", answering(HookResult(data={"n": 1})))
    collecting = hooks.emit_and_collect("e", {}, timeout=0.001)
    assert await asyncio.wait_for(collecting, 60) == [{"n": 1}]
    assert ended == ["endless"]
    assert "hook 'endless' failed on e and was skipped: TimeoutError" in caplog.text


# registrations


async def test_taking_a_registration_back_takes_exactly_that_one(hooks: HookRegistry) -> None:
    handler = answering(None)
    first = hooks.register("a", handler, name="logger")
    hooks.register("a", handler, name="logger")
    hooks.register("b", handler, name="logger")
    first()
    assert hooks.list_handlers() == {"a": ["logger"], "b": ["logger"]}
    first()
    assert hooks.list_handlers() == {"a": ["logger"], "b": ["logger"]}


async def test_the_handlers_of_several_events_are_taken_back_together(hooks: HookRegistry) -> None:
    handler = answering(None)
    hooks.register("a", handler, name="logger")
    take_back = hooks.register_all({"a": handler, "b": plain}, name="logger")
    assert hooks.list_handlers() == {"a": ["logger", "logger"], "b": ["logger"]}
    assert (await hooks.emit("b", {})).action == "deny"
    take_back()
    assert hooks.list_handlers() == {"a": ["logger"]}


async def test_nothing_is_heard_after_all_registrations_are_undone(hooks: HookRegistry) -> None:
    take_back = hooks.register("a", plain)
    hooks.observe({"a": print, "b": print})
    hooks.clear()
    take_back()
    assert hooks.list_handlers() == {}
    assert (await hooks.emit("a", {})).action == "continue"
    hooks.guard(lambda data: HookResult(action="deny"))
    hooks.clear()
    assert events.TOOL_PRE in hooks.heard, "a gate still hears tool calls"


async def test_a_name_is_taken_back_from_every_event(hooks: HookRegistry) -> None:
    for event, name in [("a", "x"), ("a", "y"), ("b", "x")]:
        hooks.register(event, answering(None), name=name)
    hooks.unregister("x")
    hooks.unregister("never registered")
    assert hooks.list_handlers() == {"a": ["y"]}
    assert hooks.list_handlers("b") == {"b": []}


async def test_a_handler_without_a_name_is_called_what_it_is(hooks: HookRegistry) -> None:
    hooks.register("e", plain)
    hooks.register("e", CallableHandler(None))
    hooks.register("e", partial(given, None))
    assert hooks.list_handlers("e") == {"e": ["plain", "CallableHandler", "partial"]}


def test_the_registry_offers_the_published_names_of_events() -> None:
    names = "SESSION_START SESSION_END PROMPT_SUBMIT TOOL_PRE TOOL_POST CONTEXT_PRE_COMPACT ORCHESTRATOR_COMPLETE"
    for name in [*names.split(), "USER_NOTIFICATION"]:
        assert getattr(HookRegistry, name) == getattr(events, name)


async def test_whether_anybody_listens_is_known_before_anything_is_emitted() -> None:
    registry = HookRegistry()
    assert not registry.has_handlers("a")
    unregister = registry.register("a", lambda event, data: None)
    assert registry.has_handlers("a")
    unregister()
    assert not registry.has_handlers("a")
    registry.emit = registry.emit  # type: ignore[method-assign]  # as a test double would be
    assert registry.has_handlers("a")
    assert "a" in registry.heard


async def test_what_is_heard_follows_the_handlers_without_asking_again() -> None:
    registry = HookRegistry()
    heard = registry.heard
    assert "a" not in heard
    unregister = registry.register("a", lambda event, data: None)
    assert "a" in heard
    unregister()
    assert "a" not in heard


async def test_a_gate_hears_tool_calls_also_when_the_last_handler_goes() -> None:
    registry = HookRegistry()
    registry.guard(lambda data: None)
    assert events.TOOL_PRE in registry.heard
    assert registry.list_handlers() == {}
    unregister = registry.register(events.TOOL_PRE, lambda event, data: None)
    unregister()
    assert events.TOOL_PRE in registry.heard
    assert registry.list_handlers() == {}


def observing(heard: list[str], name: str) -> Callable[[str, dict[str, Any]], None]:
    return lambda event, data: heard.append(f"{name} {sorted(data)}")


async def test_observers_alone_hear_the_data_as_it_was_emitted(hooks: HookRegistry) -> None:
    heard: list[str] = []
    hooks.set_default_fields(session_id="s")
    hooks.observe({"e": observing(heard, "second")}, 1)
    hooks.observe({"e": observing(heard, "first")}, -1)
    data = {"n": 1}
    result = await hooks.emit("e", data)
    assert (result.action, result.data) == ("continue", data)
    assert hooks.tell("e", data)
    assert heard == ["first ['n']", "second ['n']"] * 2
    assert hooks.has_handlers("e")
    assert "e" in hooks.heard


async def test_an_observer_keeps_its_place_among_handlers(hooks: HookRegistry) -> None:
    heard: list[str] = []
    hooks.observe({"e": observing(heard, "before")}, -1)
    hooks.observe({"e": observing(heard, "after")}, 1)
    undo = hooks.register("e", answering(HookResult(action="deny"), heard, "denies"))
    assert not hooks.tell("e", {})
    assert (await hooks.emit("e", {})).action == "deny"
    assert heard == ["before ['timestamp']", "denies"]
    undo()
    assert hooks.tell("e", {})
    hooks.unregister("observer")
    assert not hooks.has_handlers("e")


async def test_a_failing_observer_is_reported_and_the_next_one_hears(
    hooks: HookRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def fail(event: str, data: dict[str, Any]) -> None:
        raise ValueError("broken")

    hooks.observe({"e": fail}, -1, "faulty")
    hooks.observe({"e": observing(heard, "next")})
    assert (await hooks.emit("e", {})).action == "continue"
    assert heard == ["next []"]
    assert "hook 'faulty' failed on e and was skipped: ValueError: broken" in caplog.text


async def test_a_failing_observer_refuses_no_tool_call(hooks: HookRegistry, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: str, data: dict[str, Any]) -> None:
        raise BrokenPipeError("its reader is gone")

    hooks.register(events.TOOL_PRE, answering(None), name="guard")
    stop = hooks.observe({events.TOOL_PRE: fail}, name="display")
    assert (await hooks.emit(events.TOOL_PRE, {"tool_name": "bash"})).action == "continue"
    assert "hook 'display' failed on tool:pre and was skipped: BrokenPipeError" in caplog.text
    stop()
    assert hooks.list_handlers(events.TOOL_PRE) == {events.TOOL_PRE: ["guard"]}


async def test_an_observed_tool_call_still_meets_its_gate(hooks: HookRegistry) -> None:
    hooks.observe({events.TOOL_PRE: observing([], "observer")})
    hooks.guard(lambda data: HookResult(action="deny", reason="no"))
    assert not hooks.tell(events.TOOL_PRE, {})
    assert (await hooks.emit(events.TOOL_PRE, {"tool_name": "t"})).reason == "no"


@pytest.mark.parametrize("answer", [False, "deny", ("deny", "no"), 1])
async def test_a_guard_whose_answer_cannot_be_read_refuses(answer: Any, hooks: HookRegistry) -> None:
    hooks.register(events.TOOL_PRE, answering(answer), name="guard")
    refused = await hooks.emit(events.TOOL_PRE, {"tool_name": "bash"})
    assert (refused.action, refused.reason) == (
        "deny",
        f"the guard 'guard' failed: its answer is no HookResult: {answer}",
    )
    hooks.register("e", answering(answer))
    assert (await hooks.emit("e", {})).action == "continue"


async def test_a_guard_with_an_unknown_action_refuses_and_true_is_a_yes(hooks: HookRegistry) -> None:
    blocking = HookResult()
    blocking.action = "block"  # type: ignore[assignment]
    unregister = hooks.register(events.TOOL_PRE, answering(blocking), name="guard")
    assert (await hooks.emit(events.TOOL_PRE, {"tool_name": "bash"})).action == "deny"
    unregister()
    hooks.register(events.TOOL_PRE, answering(True), name="guard")
    assert (await hooks.emit(events.TOOL_PRE, {"tool_name": "bash"})).action == "continue"
