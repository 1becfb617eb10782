"""Ask a session, and the sessions below it, to stop: first gracefully, then at once."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


class CancellationState(StrEnum):
    """How far a cancellation has gone; it only ever goes further, until `reset`."""

    NONE = "none"
    GRACEFUL = "graceful"
    IMMEDIATE = "immediate"


_RANK = {CancellationState.NONE: 0, CancellationState.GRACEFUL: 1, CancellationState.IMMEDIATE: 2}


class CancellationToken:
    """The wish to stop one session. Children take over the state of their parent, now and later.

    Graceful: running tools finish, nothing new begins. Immediate: running tools are cancelled.
    """

    def __init__(self) -> None:
        self._state = CancellationState.NONE
        self._running: dict[str, str] = {}
        self._children: list[CancellationToken] = []
        self._callbacks: list[Callable[[], Awaitable[None]]] = []

    @property
    def state(self) -> CancellationState:
        """How far it has gone."""
        return self._state

    @property
    def is_cancelled(self) -> bool:
        """Whether any stop was requested."""
        return self._state is not CancellationState.NONE

    @property
    def is_graceful(self) -> bool:
        """Whether a graceful stop, and no more, was requested."""
        return self._state is CancellationState.GRACEFUL

    @property
    def is_immediate(self) -> bool:
        """Whether an immediate stop was requested."""
        return self._state is CancellationState.IMMEDIATE

    @property
    def running_tools(self) -> set[str]:
        """The ids of the tool calls that run now."""
        return set(self._running)

    @property
    def running_tool_names(self) -> list[str]:
        """Their tools' names."""
        return list(self._running.values())

    def request_graceful(self) -> bool:
        """Ask to stop when running tools have finished. Return whether that changed the state."""
        return self._advance(CancellationState.GRACEFUL)

    def request_immediate(self) -> bool:
        """Ask to stop now. Return whether that changed the state."""
        return self._advance(CancellationState.IMMEDIATE)

    def _advance(self, state: CancellationState) -> bool:
        changed = _RANK[state] > _RANK[self._state]
        if changed:
            self._state = state
        for child in list(self._children):
            child._advance(state)
        return changed

    def reset(self) -> None:
        """Forget the request, here and in the children: the next turn begins clean."""
        self._state = CancellationState.NONE
        self._running.clear()
        for child in list(self._children):
            child.reset()

    def register_tool_start(self, tool_call_id: str, tool_name: str) -> None:
        """Note that a tool call runs."""
        self._running[tool_call_id] = tool_name

    def register_tool_complete(self, tool_call_id: str) -> None:
        """Note that it ended."""
        self._running.pop(tool_call_id, None)

    def register_child(self, child: CancellationToken) -> None:
        """Let `child` follow this token from its present state on."""
        if child not in self._children:
            self._children.append(child)
        if self._state is not CancellationState.NONE:
            child._advance(self._state)

    def unregister_child(self, child: CancellationToken) -> None:
        """Let `child` go its own way; unknown ones are ignored."""
        if child in self._children:
            self._children.remove(child)

    def on_cancel(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have `callback` awaited by `trigger_callbacks`."""
        self._callbacks.append(callback)

    async def trigger_callbacks(self) -> None:
        """Await every callback in order, then the children's; one that fails is logged, and the rest still run."""
        for callback in list(self._callbacks):
            try:
                await callback()
            except Exception:
                logger.exception("a cancellation callback failed")
        for child in list(self._children):
            await child.trigger_callbacks()
