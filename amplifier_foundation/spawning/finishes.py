"""Notice an answer that its model did not finish: cut by its length, refused, or held back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AnswerUnfinished
from amplifier_core.events import ORCHESTRATOR_COMPLETE

if TYPE_CHECKING:
    from amplifier_core.session import AmplifierSession


class FinishGuard:
    """Reads from a session's `orchestrator:complete` whether its answer is whole."""

    def __init__(self, session: AmplifierSession) -> None:
        self._session_id = session.session_id
        self._reason = ""
        session.coordinator.hooks.observe({ORCHESTRATOR_COMPLETE: self._read}, name="finish")

    def _read(self, event: str, data: dict[str, Any]) -> None:
        self._reason = str(data.get("finish_reason") or "")

    def take_problem(self, partial: str) -> AnswerUnfinished | None:
        """Return the error for an answer that is unfinished, `partial` so far, since the last call; else None."""
        reason, self._reason = self._reason, ""
        return AnswerUnfinished(self._session_id, reason, partial) if reason else None
