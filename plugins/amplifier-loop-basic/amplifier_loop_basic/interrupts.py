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
        self.token: CancellationToken | None = None
        """The session's cancellation; None when the turn runs without a session."""
        self._waiting: dict[asyncio.Task[Any], bool] = {}
        """Who waits, and whether they have been told to stop."""

    def listen_to(self, coordinator: ModuleCoordinator | None) -> None:
        """Follow the cancellation of this session; again is nothing."""
        if coordinator is not None and coordinator.cancellation is not self.token:
            self.token = coordinator.cancellation
            self.token.on_cancel(self._on_cancel)

    @property
    def is_cancelled(self) -> bool:
        """Whether nothing new should begin."""
        return self.token is not None and self.token.is_cancelled

    async def _on_cancel(self) -> None:
        if self.token is None or not self.token.is_immediate:
            return
        for task, is_told in self._waiting.items():
            if not is_told:
                self._waiting[task] = True
                task.cancel()

    async def run(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await `function(*args)`; raises `Interrupted` when the session is told to stop at once before it ends."""
        if self.token is not None and self.token.is_immediate:
            raise Interrupted
        task = asyncio.current_task()
        assert task is not None  # a coroutine that runs on an event loop is always some task's
        others = task.cancelling()
        self._waiting[task] = False
        try:
            return await function(*args)
        except asyncio.CancelledError:
            if self._waiting.get(task) and task.cancelling() == others + 1:
                raise Interrupted from None
            raise
        finally:
            if self._waiting.pop(task, False):
                task.uncancel()
