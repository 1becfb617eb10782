"""Call the functions of a workflow: those that await in the loop of the run, plain ones in threads of their own."""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any

from .errors import FAILED, TIMEOUT, FlowError
from .failures import explain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .tasks import Inputs, Task

MOST_THREADS = 32
"""Plain functions that run at a time; the others of a run wait, and their time limits have not begun.

As many more may go on after their time limits.
"""


class Functions:
    """Calls the functions of one run."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MOST_THREADS)
        self._overdue = 0
        """Threads that go on after the time limits of their tasks: they hold no place."""

    async def call(self, task: Task, inputs: Inputs) -> Any:
        """Return what the function of a task makes of the inputs. Raises its error, and `FlowError` for its time limit.

        A plain function blocks nobody else. What it returns to be awaited needs no thread, and no place of one.
        """
        function: Any = task.compute
        loop = asyncio.get_running_loop()
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            async with _time_limit(task, loop.time()):
                return await function(inputs)
        async with self._places:
            begun = loop.time()
            output = await self._call_in_thread(task, inputs)
        if inspect.isawaitable(output):
            async with _time_limit(task, begun):
                output = await output
        return output

    async def _call_in_thread(self, task: Task, inputs: Inputs) -> Any:
        """Return what a plain function makes of the inputs. Raises its error, and `FlowError`.

        After its time limit it cannot be ended: it is not tried again, as its effects would be there twice.
        """
        if self._overdue >= MOST_THREADS:
            reason = f"it cannot begin: {self._overdue} functions go on after their time limits"
            raise FlowError(FAILED, reason, task.id, is_retryable=True)
        assert task.compute is not None
        ended = _start_thread(task.compute, inputs)
        await asyncio.wait((ended,), timeout=task.timeout)
        if not ended.done():
            self._overdue += 1
            ended.add_done_callback(self._count_down)
            reason = f"it took longer than {task.timeout:g} s, and goes on in its thread: it is not tried again"
            raise FlowError(TIMEOUT, f"{reason}. A function that is `async def` ends with its time limit", task.id)
        output, error = ended.result()
        if isinstance(error, RuntimeError) and re.search("no (current|running) event loop", str(error)):
            said = explain(error, task.id).reason.rstrip(".")
            reason = f"{said}. A plain function runs in a thread: write it as `async def`"
            raise FlowError(FAILED, reason, task.id) from error
        if error is not None:
            raise error
        return output

    def _count_down(self, ended: asyncio.Future[Any]) -> None:
        self._overdue -= 1


def _start_thread(
    function: Callable[[Inputs], Any], inputs: Inputs
) -> asyncio.Future[tuple[Any, BaseException | None]]:
    """Call a function in a thread; return the future of its output and its error.

    The thread is a daemon: the process does not wait for it.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = copy_context()

    def run() -> None:
        output, error = None, None
        try:
            output = context.run(function, inputs)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set_result, (output, error))

    Thread(target=run, name="workflow function", daemon=True).start()
    return ended


@asynccontextmanager
async def _time_limit(task: Task, begun: float) -> AsyncIterator[None]:
    """End what a task awaits when its time is over. Raises `FlowError` then."""
    limit = asyncio.timeout_at(begun + task.timeout if task.timeout is not None else None)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise FlowError(TIMEOUT, f"it took longer than {task.timeout:g} s", task.id, is_retryable=True) from None
