"""What is told of a delegation: the events that hooks see, and the result that the model reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.models import ToolResult

from .failures import Failure, UnknownAgent, cause_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SPAWNED = "delegate:agent_spawned"
RESUMED = "delegate:agent_resumed"
COMPLETED = "delegate:agent_completed"
CANCELLED = "delegate:agent_cancelled"
ERROR = "delegate:error"
EVENTS = (SPAWNED, RESUMED, COMPLETED, CANCELLED, ERROR)

_DONE = ("completed", "success")
_COSTS = ("cost", "cost_usd", "usage")
_NEVER_BEGAN = {"SessionExists", "SessionNotFound", "InvalidSessionId", "BundleError", "UnknownName"}
"""Errors, whatever program's, after which there is no session to go on with."""
_NO_SUCH_AGENT = {"BundleNotFoundError", "UnknownName"}


@dataclass(frozen=True, slots=True)
class Errand:
    """One delegation on its way."""

    agent: str
    """As the call names it; empty when a session is gone on with and none was named."""
    session_id: str
    began: str
    """The event that tells its beginning."""
    run: Callable[[], Awaitable[Any]]
    limit: float | None
    """Seconds that the tool waits; None: for ever, or the program keeps the time."""
    names: tuple[str, ...]
    """The agents there are."""
    resumable: bool

    @property
    def who(self) -> str:
        """What messages call it."""
        return f"agent '{self.agent}'" if self.agent else f"session '{self.session_id}'"


def result_of(errand: Errand, answer: Any) -> ToolResult:
    """Return the result for what the program gave back; one that did not complete has an `error` besides its output."""
    if not isinstance(answer, Mapping):
        return failed(Failure("ProgramError", f"{errand.who} gave back {type(answer).__name__}, not a mapping"))
    told = answer.get("metadata")
    metadata = told if isinstance(told, Mapping) else {}
    output = {
        "response": answer.get("output") or "",
        "session_id": answer.get("session_id") or errand.session_id,
        "status": answer.get("status") or "completed",
        "turn_count": answer.get("turn_count") or 0,
        "agent": errand.agent or metadata.get("agent") or "",
        **{key: metadata[key] for key in _COSTS if metadata.get(key) is not None},
    }
    if output["status"] in _DONE:
        return ToolResult(output=output)
    cause = answer.get("error") or metadata.get("error")
    message = f"{errand.who} ended as '{output['status']}'{f': {cause}' if cause else ''}"
    message += _go_on(errand, output["session_id"])
    error = {"message": message, "type": "AgentFailed", "session_id": output["session_id"]}
    return ToolResult(success=False, output={**output, "error": message}, error=error)


def failure_of(errand: Errand, error: Exception, limit: float | None) -> Failure:
    """Return what an exception of the program means for the call; `limit` is the tool's own when it has passed."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if errand.agent and (kinds & _NO_SUCH_AGENT) and getattr(error, "kind", "agent") == "agent":
        others = [name for name in errand.names if name != errand.agent]
        return UnknownAgent(errand.agent, others, cause_of(error) if "BundleError" in kinds else "")
    if "SpawnRefused" in kinds:
        return Failure("SpawnRefused", str(error) or f"{errand.who} was refused")
    if limit is not None or "SpawnTimeout" in kinds:
        return _out_of_time(errand, error, limit)
    message = f"{errand.who} failed: {cause_of(error)}"
    if kinds & _NEVER_BEGAN:
        return Failure(type(error).__name__, message)
    message += _go_on(errand, errand.session_id)
    return Failure("AgentFailed", message, session_id=errand.session_id, cause=type(error).__name__)


def _out_of_time(errand: Errand, error: Exception, limit: float | None) -> Failure:
    session_id = str(getattr(error, "session_id", None) or errand.session_id)
    seconds = getattr(error, "seconds", limit)
    after = f" after {seconds:g} s" if isinstance(seconds, int | float) else ""
    message = f"{errand.who} ran out of time and was stopped{after}{_go_on(errand, session_id)}"
    return Failure("SpawnTimeout", message, session_id=session_id)


def _go_on(errand: Errand, session_id: str) -> str:
    way = f". Its session can be gone on with: session_id '{session_id}'"
    return way if errand.resumable else f". Its session is '{session_id}'"


def failed(failure: Failure) -> ToolResult:
    """Return the failure as a result: the model reads its message, programs its type and facts."""
    return ToolResult(success=False, error={"message": str(failure), "type": failure.type, **failure.facts})
