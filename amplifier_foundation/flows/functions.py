"""Call the functions of a workflow: those that await in the loop of the run, plain ones in threads of their own."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any

from .errors import TIMEOUT, FlowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tasks import Inputs, Task

MOST_THREADS = 32
"""Plain functions that run at a time; the others of a run wait, and their time limits have not begun."""


class Functions:
    """Calls the functions of one run."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MOST_THREADS)

    async def call(self, task: Task, inputs: Inputs) -> Any:
        """Return what the function of a task makes of the inputs. Raises its error, and `FlowError` for its time limit.

        A plain function blocks nobody else. What it returns to be awaited needs no thread, and no place of one.
        """
        function: Any = task.compute
        in_loop = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        if not in_loop:
            await self._places.acquire()
        limit = asyncio.timeout(task.timeout)
        try:
            async with limit:
                if in_loop:
                    return await function(inputs)
                try:
                    output = await _call_in_thread(function, inputs)
                finally:
                    self._places.release()
                return await output if inspect.isawaitable(output) else output
        except TimeoutError:
            if not limit.expired():
                raise
            raise FlowError(TIMEOUT, f"it took longer than {task.timeout:g} s", task.id, is_retryable=True) from None


async def _call_in_thread(function: Callable[[Inputs], Any], inputs: Inputs) -> Any:
    """Return what a function makes of the inputs. Raises its error.

    A cancelled call goes on without a listener. Its thread is a daemon: the process does not wait for it.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = copy_context()

    def settle(output: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((output, error))

    def run() -> None:
        output, error = None, None
        try:
            output = context.run(function, inputs)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, output, error)

    Thread(target=run, name="workflow function", daemon=True).start()
    output, error = await ended
    if error is not None:
        raise error
    return output
