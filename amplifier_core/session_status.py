"""Report the progress of a session."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from .models import SessionStatus

if TYPE_CHECKING:
    from .session import AmplifierSession
    from .transcript import Message


def read_status(session: AmplifierSession) -> SessionStatus:
    """Return the session's status; tool calls are counted in its history, a fork's shared part included."""
    messages = list(session.transcript)
    answers = [message for message in messages if message.get("role") == "tool"]
    failures = ("Error:", "Denied by hook:")  # as loops write them
    failed = sum(str(message.get("content")).startswith(failures) for message in answers)
    error = session.last_error
    return SessionStatus(
        session_id=session.session_id,
        started_at=session.started_at,
        ended_at=session.ended_at,
        status=session.state,
        total_messages=len(messages),
        tool_invocations=sum(len(message.get("tool_calls") or ()) for message in messages),
        tool_successes=len(answers) - failed,
        tool_failures=failed,
        last_activity=_read_timestamp(messages[-1]) if messages else None,
        last_error=None if error is None else {"type": type(error).__name__, "message": str(error)},
    )


def _read_timestamp(message: Message) -> datetime | None:
    stamp = (message.get("metadata") or {}).get("timestamp")
    try:
        return datetime.fromisoformat(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None
