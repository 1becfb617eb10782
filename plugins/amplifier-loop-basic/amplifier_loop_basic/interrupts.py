"""Stop at once whatever a turn waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import CancellationToken, ModuleCoordinator

A = TypeVar("A")
T = TypeVar("T")


class Interrupted(Exception):
    """The session stops, and the awaited work has been cancelled."""


class Interrupts:
    """The tasks of a session's turns, cancelled if the session stops.

    A graceful stop cancels work without effects: a model call. A stop at once cancels tools, too.
    """

    def __init__(self) -> None:
        self.token: CancellationToken | None = None
        """The session's cancellation; None for a turn without a session."""
        self._waiting: dict[asyncio.Task[Any], bool] = {}
        """The tasks that wait, and whether the awaited work has effects."""
        self._cut: set[asyncio.Task[Any]] = set()
        """Those whose work has been cancelled."""

    def listen_to(self, coordinator: ModuleCoordinator | None) -> None:
        """Follow the cancellation of this session; idempotent."""
        if coordinator is None or coordinator.cancellation is self.token:
            return
        self.token = coordinator.cancellation
        if hasattr(self.token, "on_change"):
            self.token.on_change(self._cancel_waiting)
        else:  # another kernel's token calls only what is awaited
            self.token.on_cancel(self._on_cancel)

    @property
    def is_cancelled(self) -> bool:
        """Whether no new work should begin."""
        token = self.token
        return token is not None and token.is_cancelled

    async def _on_cancel(self) -> None:
        self._cancel_waiting()

    def _cancel_waiting(self) -> None:
        for task, has_effects in self._waiting.items():
            if task not in self._cut and self._ends(has_effects):
                self._cut.add(task)
                task.cancel()

    def _ends(self, has_effects: bool) -> bool:
        token = self.token
        return token is not None and token.is_cancelled and (token.is_immediate or not has_effects)

    async def run(
        self, task: asyncio.Task[Any], function: Callable[[A], Awaitable[T]], argument: A, has_effects: bool
    ) -> T:
        """Await `function(argument)` in `task`, the current one.

        Raises `Interrupted` if the session stops meanwhile; work that `has_effects` ends with a stop at once only.
        """
        token = self.token
        if token is not None and token.is_cancelled and self._ends(has_effects):
            raise Interrupted
        others = task.cancelling()
        self._waiting[task] = has_effects
        try:
            result = await function(argument)
            if self._cut and task in self._cut:
                await _let_cancellation_arrive(task, others)
            return result
        except asyncio.CancelledError:
            if task in self._cut and task.cancelling() == others + 1:
                raise Interrupted from None
            raise
        finally:
            del self._waiting[task]
            if self._cut and task in self._cut:
                self._cut.remove(task)
                task.uncancel()


def current_task() -> asyncio.Task[Any]:
    """Return the task of the running coroutine. Ask once: on CPython 3.11 it is a system call (1 µs)."""
    task = asyncio.current_task()
    assert task is not None  # a running coroutine always belongs to a task
    return task


async def _let_cancellation_arrive(task: asyncio.Task[Any], others: int) -> None:
    """Take the cancellation here that the ended work asked for itself: it would hit the next wait of the turn."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if task.cancelling() > others + 1:
            raise
