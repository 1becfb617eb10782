"""The tool as a session mounts it."""

from __future__ import annotations

import asyncio
import inspect
import re
import secrets
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from .agents import Agents
from .failures import Failure, InvalidInput
from .schemas import check, schema_for
from .telling import CANCELLED, COMPLETED, ERROR, RESUMED, SPAWNED, Errand, failed, failure_of, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import ModuleCoordinator, ToolResult

    from .config import Settings

    Capability = Callable[..., Awaitable[Any]]

LONGEST_NAME = 64
"""Characters of an agent's name in the id of its session."""

_SPAN = re.compile(r"[0-9a-f]{16}-([0-9a-f]{16})_.+")
_CONTEXT = ("context_depth", "context_scope", "context_turns")


class Preference(dict[str, str]):
    """A provider and perhaps its model: some programs read it as a mapping, others by attribute."""

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self["provider"]

    @property
    def model(self) -> str | None:
        """The model's name, or pattern; None: the provider's own choice."""
        return self.get("model")


class DelegateTool:
    """Gives a task to another agent. A call that comes to nothing is a result that says why, never an exception.

    Calls share nothing, so that any number of them may run at once.
    """

    name = "delegate"

    def __init__(self, coordinator: ModuleCoordinator, settings: Settings) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._agents = Agents(coordinator, settings)
        self.input_schema = schema_for(settings)

    @property
    def description(self) -> str:
        """What the tool does, and the agents there are now."""
        return self._agents.described()

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Have the task done; a failure has a `message`, a `type` and, where there is one, the agent's `session_id`."""
        try:
            errand = self._errand(check(self.input_schema, input))
        except Failure as failure:
            return failed(failure)
        await self._emit(errand.began, errand)
        try:
            result = await self._run(errand)
        except asyncio.CancelledError:
            await self._emit(CANCELLED, errand)
            raise
        await self._emit_end(errand, result)
        return result

    def _errand(self, given: dict[str, Any]) -> Errand:
        if "session_id" in given:
            return self._resuming(given)
        if "agent" not in given:
            instead = ", or the 'session_id' of an earlier call" if self._settings.resumes else ""
            raise InvalidInput(f"'agent' is missing; name one of {', '.join(self._agents.purposes())}{instead}")
        return self._spawning(given)

    def _resuming(self, given: dict[str, Any]) -> Errand:
        resume = self._capability("session.resume", "go on with the session of an agent; delegate the task anew")
        taken = _parameters(resume)
        call = partial(resume, sub_session_id=given["session_id"], instruction=given["instruction"])
        return self._new_errand(given.get("agent", ""), given["session_id"], RESUMED, call, taken)

    def _spawning(self, given: dict[str, Any]) -> Errand:
        spawn = self._capability("session.spawn", "run agents; do the task here")
        agent = self._agents.find(given["agent"])
        session_id = new_session_id(given["agent"], self._coordinator.session_id)
        taken = _parameters(spawn)
        call = partial(
            spawn,
            agent_name=agent,
            instruction=given["instruction"],
            parent_session=getattr(self._coordinator, "session", None),
            agent_configs=self._agents.configs,
            sub_session_id=session_id,
            tool_inheritance=self._settings.tool_inheritance,
            hook_inheritance=self._settings.hook_inheritance,
            orchestrator_config=None,
            provider_preferences=_preferences(given),
            self_delegation_depth=self._agents.self_depth(agent),
            session_metadata={key: given[key] for key in ("agent", "model_role") if key in given},
            parent_messages=None,
            **_extras(given, taken),
        )
        return self._new_errand(given["agent"], session_id, SPAWNED, call, taken)

    def _new_errand(self, agent: str, session_id: str, began: str, call: Capability, taken: frozenset[str]) -> Errand:
        """Return the errand; a program that takes a time limit is left to keep it, as it stores what was done."""
        limit = self._settings.timeout
        if limit is not None and "timeout" in taken:
            call, limit = partial(call, timeout=limit), None
        resumable = self._settings.resumes and self._coordinator.get_capability("session.resume") is not None
        return Errand(agent, session_id, began, call, limit, tuple(self._agents.purposes()), resumable)

    def _capability(self, name: str, what: str) -> Capability:
        capability: Capability | None = self._coordinator.get_capability(name)
        if capability is None:
            raise Failure("Unavailable", f"this program offers no '{name}', so it cannot {what}")
        return capability

    async def _run(self, errand: Errand) -> ToolResult:
        limit = asyncio.timeout(errand.limit)
        try:
            async with limit:
                return result_of(errand, await errand.run())
        except Exception as error:
            return failed(failure_of(errand, error, errand.limit if limit.expired() else None))

    async def _emit_end(self, errand: Errand, result: ToolResult) -> None:
        status = result.output.get("status") if isinstance(result.output, dict) else None
        if result.success:
            await self._emit(COMPLETED, errand, success=True, status=status)
        elif status == "cancelled":
            await self._emit(CANCELLED, errand)
        else:
            error = result.error or {}
            await self._emit(ERROR, errand, error=error.get("message"), error_type=error.get("type"))

    async def _emit(self, event: str, errand: Errand, **more: Any) -> None:
        hooks = getattr(self._coordinator, "hooks", None)
        if hooks is not None:
            about = {"agent": errand.agent, "sub_session_id": errand.session_id}
            await hooks.emit(event, {**about, "parent_session_id": self._coordinator.session_id, **more})


def _parameters(capability: Capability) -> frozenset[str]:
    """Return the names of what a capability says it takes; what it takes without saying so does not count."""
    try:
        return frozenset(inspect.signature(capability).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _extras(given: dict[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    """Return what is handed on only where it is taken. Raises `Failure` for a context that would not arrive."""
    if given.get("context_depth", "none") != "none" and "context_depth" not in taken:
        raise Failure(
            "ContextUnavailable",
            "this program tells an agent nothing of the conversation; leave context_depth out, and write what the "
            "agent must know into the instruction",
        )
    return {key: given[key] for key in (*_CONTEXT, "model_role") if key in given and key in taken}


def _preferences(given: dict[str, Any]) -> list[Preference] | None:
    return [Preference(item) for item in given.get("provider_preferences", ())] or None


def new_session_id(agent: str, parent_id: str | None) -> str:
    """Return an id as the field writes those of agents' sessions: `<parent span>-<own span>_<agent>`.

    Spans are 16 hex digits each; the parent's is its own where its id has one, else made from its id.
    """
    parent = parent_id or ""
    span = _SPAN.fullmatch(parent)
    before = span[1] if span else sha256(parent.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    name = re.sub(r"[^a-z0-9]+", "-", agent.lower())[-LONGEST_NAME:].strip("-")
    return f"{before}-{secrets.token_hex(8)}_{name or 'agent'}"
