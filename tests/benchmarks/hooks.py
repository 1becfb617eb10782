"""`hooks.emit` beside a dispatch that is written by hand for one purpose."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from amplifier_core.hooks import HookRegistry

from .measure import Row, awaited, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

AT_MOST = 1.1  # goal: times the dispatch by hand

EVENT = "tool:pre"
DATA = {"tool_name": "read_file", "tool_input": {"file_path": "a.py"}}
DEFAULTS = {"session_id": "bench", "parent_id": None}


async def rows() -> AsyncIterator[Row]:
    """Emit to 0, 1 and 10 handlers."""
    for handlers in (0, 1, 10):
        hooks, dispatch = _registry(handlers), _by_hand(handlers)
        calls = 20_000 // (handlers + 1)
        ours, limit = await in_turns(
            awaited(partial(hooks.emit, EVENT, DATA), calls),
            awaited(partial(dispatch, EVENT, DATA), calls),
            rounds=15,
        )
        what = f"hooks.emit, {handlers} handler{'s' * (handlers != 1)} / a dispatch by hand"
        yield Row(what, ours, limit, at_most_ratio=AT_MOST)


async def _handler(event: str, data: dict[str, Any]) -> None:
    return None


def _registry(handlers: int) -> HookRegistry:
    hooks = HookRegistry()
    hooks.set_default_fields(**DEFAULTS)
    for number in range(handlers):
        hooks.register(EVENT, _handler, name=f"handler-{number}")
    return hooks


def _by_hand(handlers: int) -> Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]:
    """Return a dispatch that merges defaults, stamps the time and awaits its handlers, and can do nothing else."""
    registered = {EVENT: (_handler,) * handlers}

    async def dispatch(event: str, data: dict[str, Any]) -> dict[str, Any]:
        payload = {**DEFAULTS, **data, "timestamp": datetime.now(UTC).isoformat()}
        for handler in registered.get(event, ()):
            await handler(event, payload)
        return payload

    return dispatch
