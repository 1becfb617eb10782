"""Give each tool call a context: its session, its id, and an idempotency key.

A tool reads the context of its own call through the capability `tool.call`, a function without parameters; published
tools are called as ever. The key is made from the session's id, the position of the call's message in the history, and
the call's id: it is the same when the call runs again after a crash, and the same for nothing else.
"""

from __future__ import annotations

from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core import ContextManager

CAPABILITY = "tool.call"
RUN_AGAIN = "tool.run_again"
"""The capability with the ids of open calls to run again: a person has decided so."""
HELD = "tool.held"
"""The capability with the `HeldCalls` of the session: calls that wait for an answer to a question about them."""

current_call: ContextVar[dict[str, Any] | None] = ContextVar("current_call", default=None)


class HeldCalls(Protocol):
    """The calls of a session that wait for an answer."""

    async def begin(self, call_id: str) -> None:
        """Note, durably, that a call runs from now on."""

    def is_held(self, call_id: str) -> bool:
        """Return whether a call waits since this turn: it gets no result."""


class OpenCall(NamedTuple):
    """A tool call in the history without a result, in the shape of a response's call."""

    id: str
    name: str
    arguments: dict[str, Any]


async def read_history(context: ContextManager) -> Sequence[dict[str, Any]]:
    """Return the messages of a context; its shared transcript where it has one."""
    transcript: Sequence[dict[str, Any]] | None = getattr(context, "transcript", None)
    return await context.get_messages() if transcript is None else transcript


def find_position(history: Sequence[dict[str, Any]], call_id: str) -> int:
    """Return the position of the last message with this tool call; the end of the history without one."""
    for position in range(len(history) - 1, -1, -1):
        message = history[position]
        if message.get("role") == "assistant":
            calls = message.get("tool_calls") or ()
            return position if call_id in [call["id"] for call in calls] else len(history)
    return len(history)


def make_key(session_id: str, position: int, call_id: str) -> str:
    """Return the idempotency key of a call, 32 hex digits."""
    return sha256(f"{session_id}\0{position}\0{call_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
