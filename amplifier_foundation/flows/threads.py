"""Call a function of a workflow in a thread of its own: one that blocks holds up its task alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tasks import Inputs


async def call_in_thread(function: Callable[[Inputs], Any], inputs: Inputs) -> Any:
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
