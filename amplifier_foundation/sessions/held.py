"""Keep the tool calls of a session that wait for an answer open, over any end of its process.

The record of the session marks each held call. A held call has not begun: it is always sound to ask about it again. Its
mark goes, durably, before it runs; from then on it is a call like any other, and never runs a second time.

A call whose tool runs another session (`delegate`) is held while a call of that one is. Its mark names that session and
stays: when the call runs again, the session goes on instead of a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.session import AmplifierSession

    from .recording import SessionRecorder

HELD = "held"
"""The member of a record's metadata with the marks, by the ids of calls."""
CAPABILITY = "tool.held"
"""The capability with the `HeldCalls` of a session."""
CALL = "tool.call"
"""The capability that describes the running call, of the orchestrator."""


class HeldCalls:
    """Marks the held calls of one session."""

    def __init__(self, recorder: SessionRecorder) -> None:
        self._recorder = recorder
        self._marks = held_of(recorder.metadata.values)
        self._waiting: set[str] = set()

    @property
    def marks(self) -> dict[str, dict[str, Any]]:
        """The marks of the calls that wait since this turn; all others have an answer."""
        return {call_id: mark for call_id, mark in self._marks.items() if call_id in self._waiting}

    def is_held(self, call_id: str) -> bool:
        """Return whether a call waits since this turn."""
        return call_id in self._waiting

    def session_of(self, call_id: str) -> str | None:
        """Return the session that a call goes on with when it runs again."""
        session_id = self._marks.get(call_id, {}).get("session")
        return session_id if isinstance(session_id, str) else None

    async def hold(self, call_id: str, tool: str, session_id: str | None = None) -> None:
        """Mark a call, durably; `session_id` is that of the session it waits for. Raises the errors of the store."""
        below = {"session": session_id} if session_id is not None else {}
        mark = {"tool": tool, **below}
        known, self._marks[call_id] = self._marks.get(call_id), mark
        self._waiting.add(call_id)
        if known != mark:
            await self._write()

    async def begin(self, call_id: str) -> None:
        """Remove the mark of a call that runs from now on, durably, unless it goes on with another session."""
        if call_id in self._marks and self.session_of(call_id) is None:
            del self._marks[call_id]
            await self._write()

    def fail(self, error: Exception) -> None:
        """Stop the session: it cannot be stored."""
        self._recorder.fail(error)

    async def _write(self) -> None:
        await self._recorder.metadata.write(**{HELD: dict(self._marks)})


def held_of(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the marks in the metadata of a record, by the ids of calls."""
    marks = metadata.get(HELD)
    return {call_id: dict(mark) for call_id, mark in marks.items()} if isinstance(marks, dict) else {}


def running_call(session: AmplifierSession) -> tuple[HeldCalls, str, str] | None:
    """Return the held calls of a session, and the id and the tool of the call that runs in this task; None outside."""
    held = session.coordinator.get_capability(CAPABILITY)
    describe = session.coordinator.get_capability(CALL)
    call = describe() if describe is not None else None
    if held is None or not call or call.get("session_id") != session.session_id:
        return None
    return held, str(call["tool_call_id"]), str(call["tool_name"])
