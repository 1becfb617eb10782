"""Run the coroutines of commands: in an event loop, or without one as long as none is needed."""

from __future__ import annotations

import gc
import sys
from functools import partial, wraps
from types import coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .interrupting import interrupts_to_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_ENTER = object()

STARTING, STARTED = (1_000_000, 20, 20), (100_000, 20, 20)
"""Thresholds of the garbage collector: until a command has started, and from then on."""
START = 10.0
"""Seconds after which a command counts as started that does not say so itself."""


def end_start() -> None:
    """Collect garbage as usual from now on, and never again look at what the start has made: its modules stay."""
    if gc.get_threshold() == STARTING:  # else this is no process of `amplifier`, or its start is over
        gc.freeze()
        gc.set_threshold(*STARTED)


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, and let the processes of its sessions end."""
    import asyncio

    with interrupts_to_loop():
        return asyncio.run(run_to_end(work))


async def run_to_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Await a coroutine, then the ends of the processes of its sessions."""
    from asyncio import get_running_loop

    get_running_loop().call_later(START, end_start)
    try:
        return await work
    finally:
        ends = sys.modules.get("amplifier_core.process_ends")
        if ends is not None:
            await ends.finish_endings()


def run_in_loop(command: Callable[Arguments, Coroutine[Any, Any, Result]]) -> Callable[Arguments, Result]:
    """Turn an `async def` command into one for click: each call runs in an event loop of its own."""

    @wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return run_async(command(*args, **kwargs))

    return run


def is_in_loop() -> bool:
    """Return whether an event loop runs."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


@coroutine
def enter_loop() -> Generator[object, None, None]:
    """Continue the running command in an event loop, unless it has one."""
    if not is_in_loop():
        yield _ENTER


def run_reading(command: Callable[Arguments, Coroutine[Any, Any, Result]]) -> Callable[Arguments, Result]:
    """Turn an `async def` command into one for click that starts without an event loop.

    Importing asyncio takes a third of the time of a short command. The command must `await enter_loop()` before the
    first step that needs a loop.
    """

    @wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        started = command(*args, **kwargs)
        try:
            started.send(None)
        except StopIteration as end:
            result: Result = end.value
            return result
        return run_async(_continue(started))

    return run


@coroutine
def _continue(started: Coroutine[Any, Any, Result]) -> Generator[Any, Any, Result]:
    """Drive a coroutine that waits for a loop; a started one cannot be awaited."""
    step = partial(started.send, None)
    while True:
        try:
            waiting_for = step()
        except StopIteration as end:
            result: Result = end.value
            return result
        try:
            step = partial(started.send, (yield waiting_for))
        except BaseException as error:
            step = partial(started.throw, error)
