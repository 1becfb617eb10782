"""Run coroutines in tasks, and end them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

logger = logging.getLogger(__name__)


@asynccontextmanager
async def run_beside(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run `work` in a task called `name` while the block runs; then cancel it, and wait for its end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def gather_all(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all of them, side by side."""
    await asyncio.gather(*works)


async def end_task(task: asyncio.Task[None], grace: float) -> None:
    """Wait `grace` seconds for the end of a background session's task, then cancel it; its failure is logged."""
    done, _ = await asyncio.wait({task}, timeout=grace)
    if not done:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled() and task.exception() is not None:
        logger.error("a background session ended badly: %s", task.exception())


async def see_through(task: asyncio.Task[None]) -> BaseException | None:
    """Wait for the end of a task, and return its failure; None if it was cancelled.

    A cancellation meanwhile cancels the task, and is raised after its end, in place of its failure.
    """
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.debug("a task that was cancelled has failed", exc_info=failure)
        raise
    return None if task.cancelled() else task.exception()


def first_cause(error: BaseException) -> BaseException:
    """Return the first error in groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
