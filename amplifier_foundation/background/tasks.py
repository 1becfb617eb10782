"""Run coroutines in tasks, again after an error, and end them."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import run_guarded
from amplifier_core.clock import Clock, SystemClock
from amplifier_core.errors import PluginError
from amplifier_core.raised import describe_raised
from amplifier_core.utils.secrets import redact_text

from ..spawning.stalls import stack_of_task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two tries of work that must go on, doubled each time."""
STEADY = 60.0
"""Seconds after which work counts as working: its next failure is a first one."""

given_up: set[asyncio.Task[None]] = set()
"""Tasks that go on although they were cancelled: nobody waits for them, and only their own end takes them away."""


@contextmanager
def ending_program() -> Iterator[None]:
    """Let an error by which a signal's handler ends the program end it also out of the task of this block.

    asyncio passes exits on, and keeps errors of other classes in their task: such a one becomes `SystemExit(1)`, and
    the log names it.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        logger.critical("a signal ends the program: %s", redact_text(describe_raised(first_cause(error))))
        raise SystemExit(1) from error


@asynccontextmanager
async def run_beside(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run `work` in a task called `name` while the block runs; then cancel it, and wait for its end.

    Raises the error of the work at the end of the block. Work without an end belongs to `keep_beside`.
    """

    async def run() -> None:
        with ending_program():
            await run_guarded(work)

    task = asyncio.create_task(run(), name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        work.close()  # the task may not have begun


@asynccontextmanager
async def keep_beside(
    work: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    report: Callable[[str, str], None] = lambda component, problem: None,
    clock: Clock | None = None,
) -> AsyncIterator[None]:
    """Run `work` beside the block, as `run_beside` does, and run it again after each error, with growing pauses.

    The log names the cause. `report` gets the name and the cause, and '' for none once the work has gone on for
    `STEADY` seconds, or is over.
    """
    clock, failures = clock or SystemClock(), 0

    async def settle() -> None:
        nonlocal failures
        await clock.sleep(STEADY)
        failures = 0
        report(name, "")

    async def keep_going() -> None:
        nonlocal failures
        while True:
            try:
                async with run_beside(settle(), name) if failures else nullcontext():
                    return await run_apart(work(), name, math.inf)
            except Exception as error:
                problem = redact_text(describe_raised(first_cause(error)))
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 10))
            failures += 1
            logger.error("%s: failed, and tried again in %g s: %s", name, pause, problem)
            report(name, problem)
            await clock.sleep(pause)

    try:
        async with run_beside(keep_going(), name):
            yield
    finally:
        if failures:
            report(name, "")


async def gather_all(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all of them, side by side."""
    with ending_program():
        await asyncio.gather(*works)


async def end_task(task: asyncio.Task[None], grace: float) -> None:
    """Wait `grace` seconds for the end of a background session's task, then cancel it; its failure is logged."""
    done, _ = await asyncio.wait({task}, timeout=grace)
    if not done:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled() and (failure := task.exception()) is not None:
        logger.error("a background session ended badly: %s", describe_raised(first_cause(failure)))


async def run_apart(work: Coroutine[Any, Any, None], name: str, patience: float) -> None:
    """Run the `work` of a module in a task called `name`; raise what it raises, as `run_guarded` does.

    A task that goes on `patience` seconds after its cancellation is given up: the log says where it waits.
    """
    task = asyncio.create_task(run_guarded(work), name=name)
    try:
        failure = await see_through(task, patience)
    finally:
        if not task.done():
            given_up.add(task)
            task.add_done_callback(_forget)
            where = stack_of_task(task)
            logger.warning("%s goes on although it was cancelled, and is given up: %s", name, where)
    if failure is not None:
        raise failure
    if task.cancelled():
        raise PluginError(f"{name} cancelled itself")


def _forget(task: asyncio.Task[None]) -> None:
    given_up.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio logs it


async def see_through(task: asyncio.Task[None], patience: float = math.inf) -> BaseException | None:
    """Wait for the end of a task, and return its failure; None if it was cancelled.

    A cancellation meanwhile cancels the task, and is raised after its end, in place of its failure, or after
    `patience` seconds.
    """
    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        ends = loop.time() + patience
        while not task.done() and (left := ends - loop.time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task}, timeout=left)
        if task.done() and not task.cancelled() and (failure := task.exception()) is not None:
            logger.debug("a task that was cancelled has failed", exc_info=failure)
        raise
    return None if task.cancelled() else task.exception()


def first_cause(error: BaseException) -> BaseException:
    """Return the first error in groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
