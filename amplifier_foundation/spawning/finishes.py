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
        self.stop_reason = ""
        """The `finish_reason` of the last answer, or the limit that stopped the turn before one; '' for any other."""
        self._reason = self._stopped = ""
        session.coordinator.hooks.observe({ORCHESTRATOR_COMPLETE: self._read}, name="finish")

    def _read(self, event: str, data: dict[str, Any]) -> None:
        self._reason = str(data.get("finish_reason") or "")
        self.stop_reason = self._reason or str(data.get("limit") or "")
        self._stopped = str(data.get("reason") or "") if data.get("status") == "incomplete" else ""

    def take_problem(self, partial: str, *, needs_answer: bool = False) -> AnswerUnfinished | None:
        """Return the error for an answer that is unfinished, `partial` so far, since the last call; else None.

        With `needs_answer`, also for a turn that stopped before one: at its limit of requests, or denied by a hook.
        """
        reason, stopped = self._reason, self._stopped if needs_answer else ""
        self._reason = self._stopped = ""
        if reason:
            return AnswerUnfinished(self._session_id, reason, partial)
        if not stopped:
            return None
        said = "" if partial == stopped else partial  # a loop returns the reason in place of an answer
        return AnswerUnfinished(self._session_id, f"stopped before an answer: {stopped}", said)
