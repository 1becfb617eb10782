"""Check the contract of a module of hooks; its author runs the check.

    async def test_the_contract():
        await check_hooks(mount, {"deny": ["bash"]})

Its handlers see well-known events of a session, with the data that they usually have. A broken rule raises
`AssertionError` with a sentence about it. Nothing here needs a test runner.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from ..models import HookResult
from ..validation.base import takes
from ..validation.hook import handlers_of
from .mocks import MockCoordinator
from .process_watch import watch_process
from .store_checks.rules import require

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

EVENTS: dict[str, dict[str, Any]] = {
    "session:start": {},
    "prompt:submit": {"prompt": "Hello"},
    "tool:pre": {"tool_name": "read_file", "tool_input": {"file_path": "notes.txt"}, "tool_call_id": "call-1"},
    "tool:post": {
        "tool_name": "read_file",
        "tool_input": {"file_path": "notes.txt"},
        "result": {"output": "Buy milk."},
    },
    "tool:error": {"tool_name": "read_file", "error": {"message": "there is no such file"}},
    "orchestrator:complete": {"status": "success", "turn_count": 1},
    "session:end": {"status": "completed"},
}


async def check_hooks(
    mount: Callable[..., Awaitable[Any]],
    config: Mapping[str, Any] | None = None,
    *,
    events: Mapping[str, Mapping[str, Any]] | None = None,
    patience: float = 10.0,
) -> None:
    """Mount the hooks, call each handler with `events` (default: the well-known ones), and clean up.

    `patience` is the most seconds for each. Raises `AssertionError`.
    """
    coordinator = MockCoordinator()
    async with watch_process("a module of hooks"):
        async with asyncio.timeout(patience):
            cleanup = await mount(coordinator, dict(config or {}))
        for event, data in {**EVENTS, **(events or {})}.items():
            for registered, name, handler in handlers_of(coordinator):
                if registered in (event, "*"):
                    await _check_handler(name, handler, event, dict(data), patience)
        if callable(cleanup):
            ended = cleanup()
            if inspect.isawaitable(ended):
                await ended
        await coordinator.cleanup()
    if callable(cleanup):
        left = [name for _, name, _ in handlers_of(coordinator)]
        require(not left, f"the clean-up must unregister every handler; it left {', '.join(left)}")


async def _check_handler(name: str, handler: Any, event: str, data: dict[str, Any], patience: float) -> None:
    title = f"the handler {name} of {event}"
    require(takes(handler, "event", "data"), f"{title} must take (event, data)")
    try:
        async with asyncio.timeout(patience):
            result = handler(event, data)
            result = await result if inspect.isawaitable(result) else result
    except TimeoutError:
        raise AssertionError(f"{title} must end; it did not within {patience:g} s") from None
    except Exception as error:
        raise AssertionError(f"{title} must not raise; it raised {type(error).__name__}: {error}") from error
    fits = result is None or isinstance(result, HookResult)
    require(fits, f"{title} must return a HookResult, or None to go on, not {type(result).__name__}")
