"""The wish to stop a session: how far it has gone, whom it reaches, who is told."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from amplifier_core.cancellation import (
    CancellationState,
    CancellationToken,
    as_failure,
    ends_program,
    own_failure,
    run_guarded,
)
from amplifier_core.errors import PluginError
from tests.odd_errors import PanicException, Unreadable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture
def token() -> CancellationToken:
    return CancellationToken()


def noting(told: list[str], name: str, error: BaseException | None = None) -> Callable[[], Awaitable[None]]:
    async def callback() -> None:
        told.append(name)
        if error is not None:
            raise error

    return callback


def test_a_new_token_asks_for_nothing(token: CancellationToken) -> None:
    assert token.state is CancellationState.NONE
    assert (token.is_cancelled, token.is_graceful, token.is_immediate) == (False, False, False)


def test_a_state_is_a_member_and_a_text(token: CancellationToken) -> None:
    token.request_graceful()
    assert token.state is CancellationState.GRACEFUL
    assert (token.state == "graceful", token.state.value, f"{token.state}") == (True, "graceful", "graceful")


def test_a_request_is_news_once(token: CancellationToken) -> None:
    assert [token.request_graceful(), token.request_graceful()] == [True, False]
    assert (token.is_cancelled, token.is_graceful, token.is_immediate) == (True, True, False)
    assert [token.request_immediate(), token.request_immediate()] == [True, False]
    assert (token.is_cancelled, token.is_graceful, token.is_immediate) == (True, False, True)


def test_a_stop_at_once_is_not_taken_back_by_a_graceful_one(token: CancellationToken) -> None:
    token.request_immediate()
    assert token.request_graceful() is False
    assert token.is_immediate


def test_a_request_reaches_children_and_their_children(token: CancellationToken) -> None:
    child, grandchild = CancellationToken(), CancellationToken()
    token.register_child(child)
    child.register_child(grandchild)
    token.request_graceful()
    assert (child.is_graceful, grandchild.is_graceful) == (True, True)
    token.request_immediate()
    assert (child.is_immediate, grandchild.is_immediate) == (True, True)


def test_a_request_of_a_child_stays_below(token: CancellationToken) -> None:
    child, sibling = CancellationToken(), CancellationToken()
    token.register_child(child)
    token.register_child(sibling)
    child.request_immediate()
    assert not token.is_cancelled
    assert not sibling.is_cancelled


def test_a_child_that_is_stopped_already_is_not_slowed_down(token: CancellationToken) -> None:
    child = CancellationToken()
    child.request_immediate()
    token.register_child(child)
    token.request_graceful()
    assert child.is_immediate


@pytest.mark.parametrize("state", CancellationState)
def test_a_child_that_comes_later_takes_over_the_present_state(
    token: CancellationToken, state: CancellationState
) -> None:
    if state is not CancellationState.NONE:
        getattr(token, f"request_{state.value}")()
    child = CancellationToken()
    token.register_child(child)
    assert child.state is state


def test_a_child_that_is_let_go_hears_nothing_more(token: CancellationToken) -> None:
    child = CancellationToken()
    token.register_child(child)
    token.register_child(child)
    token.unregister_child(child)
    token.unregister_child(child)
    token.request_graceful()
    assert not child.is_cancelled


def test_a_reset_lets_the_next_turn_of_the_whole_family_begin_clean(token: CancellationToken) -> None:
    child = CancellationToken()
    token.register_child(child)
    token.register_tool_start("call-1", "bash")
    token.request_immediate()
    token.reset()
    assert (token.state, child.state) == (CancellationState.NONE, CancellationState.NONE)
    assert token.running_tools == set()
    assert token.request_graceful() is True
    assert child.is_graceful


def test_running_tools_are_known_by_call_and_by_name(token: CancellationToken) -> None:
    token.register_tool_start("call-1", "bash")
    token.register_tool_start("call-2", "bash")
    token.register_tool_start("call-3", "read")
    token.register_tool_complete("call-1")
    token.register_tool_complete("never began")
    assert token.running_tools == {"call-2", "call-3"}
    assert token.running_tool_names == ["bash", "read"]


def test_what_a_token_says_of_running_tools_cannot_change_it(token: CancellationToken) -> None:
    token.register_tool_start("call-1", "bash")
    token.running_tools.clear()
    token.running_tool_names.clear()
    assert (token.running_tools, token.running_tool_names) == ({"call-1"}, ["bash"])


async def test_callbacks_are_awaited_in_order_and_a_failing_one_stops_nobody(
    token: CancellationToken, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    token.on_cancel(noting(told, "first"))
    token.on_cancel(noting(told, "second", ValueError("broken")))
    token.on_cancel(noting(told, "third"))
    await token.trigger_callbacks()
    assert told == ["first", "second", "third"]
    assert "a cancellation callback failed" in caplog.text
    assert "ValueError: broken" in caplog.text


async def test_a_callback_that_cancels_itself_is_one_that_failed(token: CancellationToken) -> None:
    told: list[str] = []
    token.on_cancel(noting(told, "first", asyncio.CancelledError()))
    token.on_cancel(noting(told, "second"))
    await token.trigger_callbacks()
    assert told == ["first", "second"]


async def test_an_exit_of_the_program_is_raised_when_every_callback_has_run(token: CancellationToken) -> None:
    told: list[str] = []
    child = CancellationToken()
    token.register_child(child)
    token.on_cancel(noting(told, "first", KeyboardInterrupt("first")))
    token.on_cancel(noting(told, "second", SystemExit("second")))
    child.on_cancel(noting(told, "child", KeyboardInterrupt("child")))
    child.on_cancel(noting(told, "child's second"))
    with pytest.raises(KeyboardInterrupt, match="first"):
        await token.trigger_callbacks()
    assert told == ["first", "second", "child", "child's second"]


async def test_a_task_that_is_cancelled_inside_a_callback_ends_when_every_callback_has_run(
    token: CancellationToken,
) -> None:
    told: list[str] = []
    inside = asyncio.Event()

    async def wait() -> None:
        inside.set()
        await asyncio.Event().wait()

    token.on_cancel(wait)
    token.on_cancel(noting(told, "second"))
    task = asyncio.ensure_future(token.trigger_callbacks())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["second"]


async def test_the_callbacks_of_children_are_awaited_after_the_token_s_own(token: CancellationToken) -> None:
    told: list[str] = []
    child, grandchild, stranger = CancellationToken(), CancellationToken(), CancellationToken()
    for each, name in [(grandchild, "grandchild"), (child, "child"), (token, "own"), (stranger, "stranger")]:
        each.on_cancel(noting(told, name))
    token.register_child(child)
    token.register_child(stranger)
    child.register_child(grandchild)
    token.unregister_child(stranger)
    token.request_immediate()
    await token.trigger_callbacks()
    assert told == ["own", "child", "grandchild"]


async def test_a_callback_may_let_a_child_go(token: CancellationToken) -> None:
    told: list[str] = []
    child = CancellationToken()
    child.on_cancel(noting(told, "child"))

    async def let_go() -> None:
        token.unregister_child(child)
        told.append("let go")

    token.on_cancel(let_go)
    token.register_child(child)
    await token.trigger_callbacks()
    assert told == ["let go"]


def test_a_listener_hears_each_change_before_the_request_returns() -> None:
    token, parent, heard = CancellationToken(), CancellationToken(), list[str]()
    parent.register_child(token)
    token.on_change(lambda: heard.append(token.state))
    parent.request_graceful()
    token.request_graceful()
    token.request_immediate()
    assert heard == ["graceful", "immediate"]


def test_a_listener_that_fails_is_logged_and_the_others_hear(caplog: pytest.LogCaptureFixture) -> None:
    token, heard = CancellationToken(), list[str]()

    def fail() -> None:
        raise RuntimeError("no")

    for listener in (fail, lambda: heard.append("heard")):
        token.on_change(listener)
    assert token.request_graceful()
    assert heard == ["heard"]
    assert "a listener to a cancellation failed" in caplog.text


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PanicException("in Rust"), "raised PanicException: in Rust"),
        (Unreadable(), "raised Unreadable: its text cannot be read"),
        (SystemExit(3), "called exit(3), which a module may not do"),
    ],
)
def test_what_a_module_raises_is_an_exception_with_a_text(error: BaseException, told: str) -> None:
    failure = own_failure(error)
    assert isinstance(failure, PluginError)
    assert str(failure) == told


class TerminationSignal(BaseException):
    """As programs raise it in their handler of SIGTERM."""


def terminate(number: int, frame: object) -> None:
    raise TerminationSignal


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no SIGUSR1")
async def test_whatever_a_signal_handler_raises_is_the_program_s() -> None:
    async def wait() -> None:
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, terminate)
    try:
        with pytest.raises(TerminationSignal) as raised:
            await run_guarded(wait())
        assert ends_program(raised.value)
        assert not ends_program(TerminationSignal())
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="the system has no SIGALRM")
@pytest.mark.parametrize(("name", "is_taken_back"), [("SIGALRM", True), ("SIGALRM", False), ("SIGUSR1", True)])
async def test_what_a_handler_of_a_module_raises_is_the_module_s(name: str, is_taken_back: bool) -> None:
    number = signal.Signals[name]
    before = signal.getsignal(number)

    async def bound() -> None:
        signal.signal(number, terminate)
        try:
            signal.raise_signal(number)
        finally:
            if is_taken_back:
                signal.signal(number, before)

    try:
        with pytest.raises(PluginError, match="raised TerminationSignal"):
            await run_guarded(bound())
    finally:
        signal.signal(number, before)


def test_a_usual_error_is_returned_as_it_is() -> None:
    for error in (ValueError("no"), KeyError("x"), ExceptionGroup("all", [OSError()])):
        assert as_failure(error) is error


def test_a_group_is_one_of_failures() -> None:
    failure = own_failure(BaseExceptionGroup("all", [PanicException("in Rust"), OSError("away")]))
    assert isinstance(failure, ExceptionGroup)
    assert [str(each) for each in failure.exceptions] == ["raised PanicException: in Rust", "away"]
    with pytest.raises(BaseExceptionGroup) as raised:
        own_failure(BaseExceptionGroup("all", [KeyboardInterrupt()]))
    assert not isinstance(raised.value, Exception)


async def test_a_guarded_coroutine_may_be_closed_while_it_waits() -> None:
    work = run_guarded(asyncio.sleep(60))
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    left = run_guarded(asyncio.Event().wait())
    left.send(None)
    left.close()
