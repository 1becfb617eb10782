"""What a session has done so far."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from .models import SessionStatus

if TYPE_CHECKING:
    from .session import AmplifierSession
    from .transcript import Message


def read_status(session: AmplifierSession) -> SessionStatus:
    """Return the session's status; tool calls are counted in its history, a fork's shared part included."""
    messages = list(session.transcript)
    answers = [message for message in messages if message.get("role") == "tool"]
    failed = sum(_is_failure(message) for message in answers)
    return SessionStatus(
        session_id=session.session_id,
        started_at=session.started_at,
        ended_at=session.ended_at,
        status=session.state,
        total_messages=len(messages),
        tool_invocations=sum(len(message.get("tool_calls") or ()) for message in messages),
        tool_successes=len(answers) - failed,
        tool_failures=failed,
        last_activity=_said_at(messages[-1]) if messages else None,
        last_error=_described(session.last_error),
    )


def _is_failure(message: Message) -> bool:
    """Return whether a tool's result says that it failed: loops write such a result as `Error: …`."""
    content = message.get("content")
    return isinstance(content, str) and content.startswith(("Error:", "Denied by hook:"))


def _said_at(message: Message) -> datetime | None:
    stamp = (message.get("metadata") or {}).get("timestamp")
    try:
        return datetime.fromisoformat(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None


def _described(error: BaseException | None) -> dict[str, Any] | None:
    return None if error is None else {"type": type(error).__name__, "message": str(error)}
