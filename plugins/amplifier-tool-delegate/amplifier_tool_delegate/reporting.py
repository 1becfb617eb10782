"""Report a delegation: as events for hooks, and as a result for the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.models import ToolResult

from .failures import DelegationError, UnknownAgent, describe_error

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
"""Names of errors, of any program, without a session to resume."""
_REFUSALS = {"SpawnRefused", "ForkRefused"}
"""Names of the refusals of plugins: nothing has begun."""
_NO_SUCH_AGENT = {"BundleNotFoundError", "UnknownName"}


@dataclass(frozen=True, slots=True)
class Delegation:
    """One run of an agent for a call."""

    agent: str
    """The name in the call; empty if the call resumes a session without a name."""
    session_id: str
    start_event: str
    run: Callable[[], Awaitable[Any]]
    limit: float | None
    """Seconds that the tool waits; None: without end, or the program limits the time."""
    names: tuple[str, ...]
    """The agents for calls."""
    resumable: bool

    @property
    def subject(self) -> str:
        """Its name in messages."""
        return f"agent '{self.agent}'" if self.agent else f"session '{self.session_id}'"

    def advise(self, session_id: str) -> str:
        """Return the end of a message: the session, and how to resume it."""
        way = f". Resume its session with session_id '{session_id}'"
        return way if self.resumable else f". Its session is '{session_id}'"


def make_result(delegation: Delegation, answer: Any) -> ToolResult:
    """Return the result for the program's answer; an incomplete one has an `error` besides its output."""
    if not isinstance(answer, Mapping):
        message = f"{delegation.subject} returned {type(answer).__name__}, not a mapping"
        return make_failed_result(DelegationError("ProgramError", message))
    told = answer.get("metadata")
    metadata = told if isinstance(told, Mapping) else {}
    agent, stored = delegation.agent, metadata.get("agent")
    if stored and delegation.start_event == RESUMED:  # a name in the call chooses none
        agent = stored
    output = {
        "response": answer.get("output") or "",
        "session_id": answer.get("session_id") or delegation.session_id,
        "status": answer.get("status") or "completed",
        "turn_count": answer.get("turn_count") or 0,
        "agent": agent or stored or "",
        **{key: metadata[key] for key in _COSTS if metadata.get(key) is not None},
    }
    if output["status"] in _DONE:
        return ToolResult(output=output)
    cause = answer.get("error") or metadata.get("error")
    message = f"{delegation.subject} ended as '{output['status']}'{f': {cause}' if cause else ''}"
    message += delegation.advise(output["session_id"])
    error = {"message": message, "type": "AgentFailed", "session_id": output["session_id"]}
    return ToolResult(success=False, output={**output, "error": message}, error=error)


def make_failure(delegation: Delegation, error: Exception, limit: float | None) -> DelegationError:
    """Return the failure for an exception of the program; `limit` is the tool's own if it has expired."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if delegation.agent and (kinds & _NO_SUCH_AGENT) and getattr(error, "kind", "agent") == "agent":
        others = [name for name in delegation.names if name != delegation.agent]
        return UnknownAgent(delegation.agent, others, describe_error(error) if "BundleError" in kinds else "")
    for refusal in kinds & _REFUSALS:
        return DelegationError(refusal, str(error) or f"{delegation.subject} was refused")
    if limit is not None or "SpawnTimeout" in kinds:
        session_id = str(getattr(error, "session_id", None) or delegation.session_id)
        seconds = getattr(error, "seconds", limit)
        after = f" after {seconds:g} s" if isinstance(seconds, int | float) else ""
        message = f"{delegation.subject} was stopped{after}: its time was over{delegation.advise(session_id)}"
        return DelegationError("SpawnTimeout", message, session_id=session_id)
    message = f"{delegation.subject} failed: {describe_error(error)}"
    if kinds & _NEVER_BEGAN:
        return DelegationError(type(error).__name__, message)
    message += delegation.advise(delegation.session_id)
    return DelegationError("AgentFailed", message, session_id=delegation.session_id, cause=type(error).__name__)


def make_failed_result(failure: DelegationError) -> ToolResult:
    """Return the failure as a result: its message for the model, its type and facts for programs."""
    return ToolResult(success=False, error={"message": str(failure), "type": failure.type, **failure.facts})
