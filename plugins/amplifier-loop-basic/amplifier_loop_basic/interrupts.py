"""Stopping at once what a turn is waiting for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import CancellationToken, ModuleCoordinator

T = TypeVar("T")


class Interrupted(Exception):
    """The session was told to stop at once; what was awaited has been cancelled."""


class Interrupts:
    """What a session's turns are waiting for, cancelled when the session is told to stop at once."""

    def __init__(self) -> None:
        self._coordinator: ModuleCoordinator | None = None
        self._waiting: set[asyncio.Task[Any]] = set()
        self._told: set[asyncio.Task[Any]] = set()

    def listen_to(self, coordinator: ModuleCoordinator | None) -> None:
        """Follow the cancellation of this session; again is nothing."""
        if coordinator is not None and coordinator is not self._coordinator:
            self._coordinator = coordinator
            coordinator.cancellation.on_cancel(self._on_cancel)

    @property
    def token(self) -> CancellationToken | None:
        """The session's cancellation; None when the turn runs without a session."""
        return None if self._coordinator is None else self._coordinator.cancellation

    @property
    def is_cancelled(self) -> bool:
        """Whether nothing new should begin."""
        return self._coordinator is not None and self._coordinator.cancellation.is_cancelled

    async def _on_cancel(self) -> None:
        if self._coordinator is None or not self._coordinator.cancellation.is_immediate:
            return
        for task in self._waiting - self._told:
            self._told.add(task)
            task.cancel()

    async def run(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await `function(*args)`; raises `Interrupted` when the session is told to stop at once before it ends."""
        if self._coordinator is not None and self._coordinator.cancellation.is_immediate:
            raise Interrupted
        task = asyncio.current_task()
        assert task is not None  # a coroutine that runs on an event loop is always some task's
        others = task.cancelling()
        self._waiting.add(task)
        try:
            return await function(*args)
        except asyncio.CancelledError:
            if task in self._told and task.cancelling() == others + 1:
                raise Interrupted from None
            raise
        finally:
            self._waiting.discard(task)
            if task in self._told:
                self._told.discard(task)
                task.uncancel()
