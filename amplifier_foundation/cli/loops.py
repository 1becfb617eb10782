"""Run the coroutines of commands: in an event loop, or without one as long as none is needed."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from functools import partial, wraps
from types import coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from amplifier_core.errors import PluginError

from . import exits
from .interrupting import interrupts_to_loop, naming_blocks
from .streams import say_now

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Generator, Sequence

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_ENTER = object()

STARTING, STARTED = (1_000_000, 20, 20), (100_000, 20, 20)
"""Thresholds of the garbage collector: until a command has started, and from then on."""
START = 10.0
"""Seconds after which a command counts as started that does not say so itself."""
NAME_AFTER = 3.0
"""Seconds until a person is told what a command still waits for at its end."""
GIVE_UP_AFTER = 10.0
"""Seconds for a task to end after its cancellation."""
POOL_ENDS_WITHIN = 1.0
"""Seconds for the threads of a loop's pool to end before the loop is closed."""
LOOP_STOPPED = "Event loop stopped before Future completed."
"""The words of asyncio."""
CANCELLED = (
    "a trigger, hook or tool has cancelled the work of the program, as `asyncio.all_tasks()` has it, too: "
    "a module may cancel its own tasks alone"
)
STOPPED = "a trigger, hook or tool has stopped the event loop of the program (`loop.stop()`), which a module may not do"
left_tasks: set[asyncio.Task[Any]] = set()
"""Tasks that were given up: only the end of the process ends them."""


def end_start() -> None:
    """Collect garbage as usual from now on, and never again look at what the start has made: its modules stay."""
    if gc.get_threshold() == STARTING:  # else this is no process of `amplifier`, or its start is over
        gc.freeze()
        gc.set_threshold(*STARTED)


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, and let the processes of its sessions end.

    Raises its errors, `PluginError` where code of a plugin or tool has ended its loop or its task, and
    `KeyboardInterrupt` where Ctrl-C has.
    """
    presses: list[int] = []
    whole = run_to_end(work, presses.append)
    try:
        return _run_loop(whole, presses)
    finally:
        for each in (whole, work):  # Ctrl-C may come before they begin
            each.close()


def _run_loop(whole: Coroutine[Any, Any, Result], presses: Sequence[int]) -> Result:
    import asyncio

    with interrupts_to_loop():
        try:
            return asyncio.run(whole)
        except asyncio.CancelledError as error:
            if presses:  # `asyncio.run` raises this itself, unless the work has cancelled its task as well
                raise KeyboardInterrupt from error
            raise PluginError(CANCELLED) from error
        except RuntimeError as error:
            if str(error) == LOOP_STOPPED:
                raise PluginError(STOPPED) from error
            raise


async def run_to_end(work: Coroutine[Any, Any, Result], on_press: Callable[[int], object]) -> Result:
    """Await a coroutine, then the ends of the processes of its sessions.

    `on_press` is called with the number of the signal at each Ctrl-C without another handler.
    """
    from asyncio import get_running_loop

    get_running_loop().call_later(START, end_start)
    with naming_blocks(on_press):
        try:
            return await work
        finally:
            ends = sys.modules.get("amplifier_core.process_ends")
            try:  # each step is made, also when Ctrl-C ends the one before
                if ends is not None:
                    await ends.finish_endings()
            finally:
                try:
                    await _end_tasks()
                finally:
                    await _end_pool()


async def _end_tasks() -> None:
    """Cancel what a plugin has left running; what goes on is named, then given up.

    `asyncio.run` waits for no task from here on: a Ctrl-C within this function ends the process.
    """
    import asyncio

    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
        task.add_done_callback(left_tasks.discard)
        asyncio.tasks._unregister_task(task)  # else `asyncio.run` waits for it
    left_tasks.update(left)
    background = sys.modules.get("amplifier_foundation.background.tasks")
    left -= background.given_up if background is not None else set()  # they were named, and had their time
    if left:
        _, left = await asyncio.wait(left, timeout=NAME_AFTER)
    if left:
        from ..spawning.stalls import stack_of_task

        where = "; ".join(sorted(stack_of_task(each) for each in left))
        _say(f"waiting for what goes on although it was cancelled: {where}. Ctrl-C ends it")
        await asyncio.wait(left, timeout=GIVE_UP_AFTER - NAME_AFTER)


async def _end_pool() -> None:
    """Let the threads of `asyncio.to_thread` end; those that do not are left to the end of the process, to be named."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    pool = getattr(loop, "_default_executor", None)
    if pool is None:
        return
    loop._default_executor = None  # type: ignore[attr-defined] # else `asyncio.run` waits for it, and hears no Ctrl-C
    ended = asyncio.Event()

    def end() -> None:
        pool.shutdown()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    with suppress(RuntimeError, TimeoutError):  # no thread can be started, or it takes long
        threading.Thread(target=end, daemon=True).start()
        async with asyncio.timeout(POOL_ENDS_WITHIN):
            await ended.wait()


def name_threads() -> None:
    """Have a person told which threads hold up the end of this process, if any do for long; Ctrl-C ends it then."""
    import threading

    def is_waited_for(thread: threading.Thread) -> bool:
        return thread is not threading.main_thread() and not thread.daemon

    def name() -> None:
        names = ", ".join(sorted(each.name for each in filter(is_waited_for, threading.enumerate())))
        if names:
            _say(f"waiting for threads that a plugin or tool has left running: {names}. Ctrl-C ends them")

    if any(map(is_waited_for, threading.enumerate())):
        signal.signal(signal.SIGINT, lambda *_: os._exit(exits.INTERRUPTED))
        timer = threading.Timer(NAME_AFTER, name)
        timer.daemon = True
        with suppress(RuntimeError):  # no thread can be started
            timer.start()


def _say(text: str) -> None:
    from ..documents.safe_text import plain

    say_now(f"amplifier: {plain(text)}")


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
