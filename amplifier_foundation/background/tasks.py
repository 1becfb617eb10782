"""Run a coroutine in a task while a block runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


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
