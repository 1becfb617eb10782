"""Read the data of hook events and the facts of a session, and never fail in a handler."""

from __future__ import annotations

import logging
import re
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextvars import ContextVar

    Handler = Callable[[str, dict[str, Any]], None]

logger = logging.getLogger("amplifier.otel")

_NAME_FIRST = re.compile(r"(.+)-[0-9a-f]{12}")
_NAME_LAST = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}_(.+)")


def guard(handle: Handler, *, is_awaited: bool) -> Callable[[str, dict[str, Any]], Any]:
    """Return a handler that logs its failure: on `tool:pre`, a failing hook would refuse the call.

    The published kernel awaits its handlers, and wants a result.
    """

    @wraps(handle)
    def guarded(event: str, data: dict[str, Any]) -> None:
        try:
            handle(event, data)
        except Exception:
            logger.debug("hooks-otel failed on %s", event, exc_info=True)

    if not is_awaited:
        return guarded
    from amplifier_core import HookResult

    @wraps(handle)
    async def awaited(event: str, data: dict[str, Any]) -> HookResult:
        guarded(event, data)
        return HookResult(action="continue")

    return awaited


def read(value: Any, name: str) -> Any:
    """Return a member of a mapping or an object; None without it."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def find_error_type(data: Mapping[str, Any]) -> str:
    """Return the type of the error in an event."""
    error = data.get("error")
    return str(error.get("type") or "error") if isinstance(error, dict) else "error"


def call_of(data: Mapping[str, Any]) -> str:
    """Return what tells the events of one tool call from those of others; another kernel's calls may have no id."""
    return str(data.get("tool_call_id") or f"{data.get('parallel_group_id')}:{data.get('tool_name')}")


def find_agent(session_id: str) -> str:
    """Return the name in a session's id: `NAME-3f9a0c1b77de`, or `…_NAME` for a session of an agent; '' without one."""
    found = _NAME_FIRST.fullmatch(session_id) or _NAME_LAST.fullmatch(session_id)
    return found[1] if found else ""


def find_present_span() -> ContextVar[str | None] | None:
    """Return the kernel's variable with the present span; None for a kernel without one."""
    try:
        from amplifier_core.correlation import traceparent
    except ModuleNotFoundError:
        return None
    return traceparent
