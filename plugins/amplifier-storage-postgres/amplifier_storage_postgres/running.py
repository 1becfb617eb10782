"""Run the statements of a store: in threads beside an event loop, or in the calling thread without one."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .faults import closed_error, store_error
from .listening import Hints
from .projects import Projects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from .connections import Pool

T = TypeVar("T")

_SILENT = frozenset({"renew", "lead", "present", "reserve"})
"""Writes that are no news."""
_QUIET = frozenset({"claim"})
"""Writes that are news to views alone."""


class Runner:
    """Run reads and writes on a pool, from coroutines of any event loop."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.hints = Hints(pool)
        self.projects = Projects(pool.settings.projects)
        self._threads: Executor | None = None
        self._process = 0
        self._closed = False

    async def read(self, query: Callable[..., T], *given: Any, **named: Any) -> T:
        """Return what `query` returns for the pool and these arguments. Raises the errors of the contract."""
        return await self._run(partial(self.read_here, query, *given, **named))

    def read_here(self, query: Callable[..., T], *given: Any, **named: Any) -> T:
        """Do as `read` does in the calling thread."""
        try:
            return query(self.pool, *given, **named)
        except Exception as error:
            raised = store_error(self.pool.settings.place, error)
            if raised is error:
                raise
            raise raised from error

    async def rows(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return the rows of one query."""
        return await self.read(_select, statement, values)

    async def write(self, work: str, given: Mapping[str, Any], texts: Sequence[str] = ()) -> Any:
        """Perform a write and return its result, once it is durable."""
        result = await self._run(partial(self.read_here, _perform, work, given, texts))
        if work not in _SILENT and result is not None:
            self.hints.tell(quiet=work in _QUIET)
        return result

    async def close(self) -> None:
        """End all threads and close all connections; idempotent."""
        if self._closed:
            return
        await self._run(self._close)
        self._closed = True
        if self._threads is not None and self._process == os.getpid():
            self._threads.shutdown(wait=False)

    def _close(self) -> None:
        self.hints.close()
        self.pool.close()

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise closed_error(self.pool.settings.place)
        if not _in_event_loop():
            return work()
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(self._executor(), work)

    def _executor(self) -> Executor:
        if self._threads is None or self._process != os.getpid():
            from concurrent.futures import ThreadPoolExecutor

            self._process = os.getpid()
            self._threads = ThreadPoolExecutor(self.pool.settings.pool, "store")
        return self._threads


def _in_event_loop() -> bool:
    """Return whether a statement would block an event loop; without asyncio imported there is none."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _select(pool: Pool, statement: str, values: Any) -> list[Any]:
    return pool.read(statement, values)


def _perform(pool: Pool, work: str, given: Mapping[str, Any], texts: Sequence[str]) -> Any:
    return pool.write(work, given, texts)
