"""Give each tool call a context: its session, its id, and an idempotency key.

A tool reads the context of its own call through the capability `tool.call`, a function without parameters; published
tools are called as ever. The key is made from the session's id, the position of the call's message in the history, and
the call's id: it is the same when the call runs again after a crash. A later call has it, too, where the context
forgets messages and the service counts its ids from 0 again.
"""

from __future__ import annotations

from contextvars import ContextVar
from hashlib import sha256
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core import ContextManager, ToolCall

_PROCESS = token_hex(6)
_GROUPS = count(1)
"""Numbers of groups of calls side by side; with the process, an id that no other group has."""

NOT_BEGUN = "Error: cancelled before the tool call began."
CUT_OFF = "Error: cancelled while the tool call ran. It may have had an effect."
CAPABILITY = "tool.call"
RUN_AGAIN = "tool.run_again"
"""The capability with the ids of open calls to run again: a person has decided so."""
HELD = "tool.held"
"""The capability with the `HeldCalls` of the session: calls that wait for an answer to a question about them."""

current_call: ContextVar[RunningCall | None] = ContextVar("current_call", default=None)


def read_call() -> dict[str, Any] | None:
    """Return the context of the tool call that runs in this task, or None: the capability `tool.call`."""
    running = current_call.get()
    return None if running is None else running.context


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


class CallGroup:
    """The calls of one message, side by side; `history` has had that message at its end.

    The position and the id are found when somebody wants to know them: most calls have no such listener.
    """

    __slots__ = ("_call_id", "_end", "_history", "_id", "_position", "begun", "denied", "session_id")

    def __init__(self, session_id: str, history: Sequence[dict[str, Any]], call_id: str) -> None:
        self.session_id = session_id
        self.begun: set[str] = set()
        """The ids of the calls whose tools have begun; until then, hooks are asked."""
        self.denied: set[str] = set()
        """The ids of the calls that were refused."""
        self._history = history
        self._end = len(history)  # results follow
        self._call_id = call_id
        self._position = -1
        self._id = ""

    @property
    def id(self) -> str:
        """An id that no other group has."""
        if not self._id:
            self._id = f"{_PROCESS}-{next(_GROUPS)}"
        return self._id

    @property
    def position(self) -> int:
        """The position of the message in the history."""
        if self._position < 0:
            self._position = find_position(self._history, self._call_id, self._end)
        return self._position

    def describe_cut(self, call_id: str) -> str:
        """Return the result of a call that is cut off."""
        return CUT_OFF if call_id in self.begun else NOT_BEGUN


class RunningCall:
    """A call, and its `input` after changes of the hooks."""

    __slots__ = ("_key", "call", "group", "input")

    def __init__(self, call: ToolCall | OpenCall, group: CallGroup) -> None:
        self.call = call
        self.group = group
        self.input = call.arguments
        self._key = ""

    @property
    def key(self) -> str:
        """The idempotency key."""
        if not self._key:
            self._key = make_key(self.group.session_id, self.group.position, self.call.id)
        return self._key

    @property
    def context(self) -> dict[str, Any]:
        """What the tool may know of its call."""
        return {
            "session_id": self.group.session_id,
            "tool_name": self.call.name,
            "tool_call_id": self.call.id,
            "idempotency_key": self.key,
        }

    def describe(self, **more: Any) -> dict[str, Any]:
        """Return the data of an event of this call."""
        return {
            "tool_name": self.call.name,
            "tool_input": self.input,
            "tool_call_id": self.call.id,
            "parallel_group_id": self.group.id,
            "idempotency_key": self.key,
            **more,
        }


async def read_history(context: ContextManager) -> Sequence[dict[str, Any]]:
    """Return the messages of a context; its shared transcript where it has one."""
    transcript: Sequence[dict[str, Any]] | None = getattr(context, "transcript", None)
    return await context.get_messages() if transcript is None else transcript


def find_position(history: Sequence[dict[str, Any]], call_id: str, end: int) -> int:
    """Return the position before `end` of the last message with this tool call; `end` without one."""
    for position in range(min(end, len(history)) - 1, -1, -1):
        message = history[position]
        if message.get("role") == "assistant":
            calls = message.get("tool_calls") or ()
            return position if call_id in [call["id"] for call in calls] else end
    return end


def make_key(session_id: str, position: int, call_id: str) -> str:
    """Return the idempotency key of a call, 32 hex digits; `sessions.interruptions` of the foundation makes it, too."""
    return sha256(f"{session_id}\0{position}\0{call_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
