"""Whoever waits for a task learns its failure, and ends it first when cancelled."""

from __future__ import annotations

import asyncio
import gc
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from amplifier_core.testing import VirtualClock
from amplifier_foundation.background.starting import keep_running
from amplifier_foundation.background.tasks import LONGEST_PAUSE, STEADY, keep_beside, see_through
from tests.odd_errors import PanicException, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


async def test_the_failure_of_a_task_is_returned() -> None:
    async def fail() -> None:
        raise ValueError("no")

    failed, cancelled = asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(60))
    cancelled.cancel()
    assert str(await see_through(failed)) == "no"
    assert await see_through(cancelled) is None  # type: ignore[arg-type]  # it returns nothing
    assert await see_through(asyncio.create_task(asyncio.sleep(0))) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_a_cancelled_wait_ends_the_task_first_and_leaves_no_failure_behind(cancellations: int) -> None:
    seen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))

    async def end_slowly() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            seen.append("ended")
            raise ValueError("it could not be stored")

    waiting = asyncio.create_task(see_through(asyncio.create_task(end_slowly())))
    await asyncio.sleep(0.01)
    for _ in range(cancellations):
        waiting.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gc.collect()
    assert seen == ["ended"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("away"), "OSError: away"),
        (PanicException("in Rust"), "raised PanicException: in Rust"),
        (Unreadable(), "raised Unreadable: its text cannot be read"),
        (SystemExit(3), "called exit(3)"),
        (asyncio.CancelledError(), "raised CancelledError"),
        (BaseExceptionGroup("unhandled errors", [PanicException("in Rust")]), "raised PanicException: in Rust"),
    ],
)
async def test_work_that_must_go_on_is_tried_again_after_any_error(
    error: BaseException, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, reports, begun = VirtualClock(), list[tuple[str, str]](), 0

    async def fail() -> None:
        nonlocal begun
        begun += 1
        raise error

    async with keep_beside(fail, "signs", lambda *given: reports.append(given), clock):
        for pause in (1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE):
            tried = begun
            await clock.until_sleeping()
            await clock.advance(pause - 0.1)
            assert begun == max(tried, 1)
            await clock.advance(0.1)
    assert begun == 8
    assert {name for name, _ in reports} == {"signs"}
    assert [told in problem for _, problem in reports] == [True] * 8 + [False]  # a problem until the end of the block
    assert told in caplog.messages[0] and "signs: failed, and tried again in 1 s" in caplog.messages[0]


async def test_a_problem_is_over_once_the_work_has_gone_on_for_a_while() -> None:
    clock, reports, begun = VirtualClock(), list[str](), 0

    async def fail_twice() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise OSError("away")
        await asyncio.Event().wait()

    def report(name: str, problem: str) -> None:
        reports.append(problem)

    async with asyncio.timeout(10), keep_beside(fail_twice, "signs", report, clock):
        for pause in (1, 2):
            await clock.until_sleeping()
            await clock.advance(pause)
        await clock.until_sleeping()
        await clock.advance(STEADY - 1)
        assert (begun, ["OSError: away" in each for each in reports]) == (3, [True, True])
        await clock.advance(1)
        assert reports[2:] == [""]
    assert reports[2:] == [""]


async def test_work_that_awaits_what_it_has_cancelled_after_a_group_is_tried_again() -> None:
    clock, begun = VirtualClock(), 0

    async def fail() -> None:
        raise OSError("away")

    async def work() -> None:
        nonlocal begun
        begun += 1
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        finally:
            pinging = asyncio.ensure_future(asyncio.Event().wait())
            pinging.cancel()
            await pinging

    async with asyncio.timeout(10), keep_beside(work, "signs", clock=clock):
        for pause in (1, 2):
            await clock.until_sleeping()
            await clock.advance(pause)
        assert begun == 3


async def test_work_that_loses_its_cancellation_ends_with_its_block() -> None:
    async def lose() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("interrupted") from None

    async with keep_beside(lose, "signs"):
        await asyncio.sleep(0)


class TerminationSignal(BaseException):
    """As programs raise it in their handler of SIGTERM."""


async def ask() -> None:
    signal.raise_signal(signal.SIGUSR1)


async def ask_in_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ask())


@pytest.mark.parametrize(
    ("work", "error"),
    [(ask, KeyboardInterrupt), (ask, SystemExit), (ask, TerminationSignal), (ask_in_group, TerminationSignal)],
)
def test_a_signal_ends_the_program_beside_such_work(
    work: Callable[[], Coroutine[Any, Any, None]], error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def end(number: int, frame: Any) -> None:
        raise error("now")

    async def main() -> None:
        async with asyncio.timeout(10), keep_beside(work, "signs"):
            await asyncio.Event().wait()

    before = signal.signal(signal.SIGUSR1, end)
    try:
        with pytest.raises(SystemExit if error is TerminationSignal else error):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGUSR1, before)
        gc.collect()  # asyncio logs the tasks that ended with the program, here and not within another test
    assert ("a signal ends the program: TerminationSignal: now" in caplog.text) == (error is TerminationSignal)


def test_a_signal_in_the_tasks_of_a_background_session_ends_the_program() -> None:
    def end(number: int, frame: Any) -> None:
        raise TerminationSignal

    async def main() -> None:
        background: Any = SimpleNamespace(
            stopping=False, queue="queue", status_log=SimpleNamespace(run=asyncio.Event().wait)
        )
        running = asyncio.create_task(keep_running(cast("Any", None), background, ask_in_group))
        try:
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        finally:
            assert isinstance(running.exception(), SystemExit)

    before = signal.signal(signal.SIGUSR1, end)
    try:
        with pytest.raises(SystemExit):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGUSR1, before)
        gc.collect()  # asyncio logs the tasks that ended with the program, here and not within another test


async def test_an_alarm_of_the_work_itself_is_its_failure() -> None:
    clock, reports = VirtualClock(), list[str]()

    def ring(number: int, frame: Any) -> None:
        raise TerminationSignal("no answer in time")

    async def work() -> None:
        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.raise_signal(signal.SIGALRM)
        finally:
            signal.signal(signal.SIGALRM, before)

    async with asyncio.timeout(10), keep_beside(work, "signs", lambda name, problem: reports.append(problem), clock):
        await clock.until_sleeping()
    assert "raised TerminationSignal: no answer in time" in reports[0]
