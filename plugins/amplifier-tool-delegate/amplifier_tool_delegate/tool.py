"""Run agents for calls, by the capabilities `session.spawn` and `session.resume` of the program."""

from __future__ import annotations

import asyncio
import inspect
import re
import secrets
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from .agents import Agents
from .failures import DelegationError, InvalidInput
from .reporting import (
    CANCELLED,
    COMPLETED,
    ERROR,
    RESUMED,
    SPAWNED,
    Delegation,
    make_failed_result,
    make_failure,
    make_result,
)
from .schemas import check, make_schema

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from amplifier_core import ModuleCoordinator, ToolResult
    from amplifier_core.permissions import Access

    from .config import DelegateConfig

    Capability = Callable[..., Awaitable[Any]]

LONGEST_NAME = 64
"""Characters of an agent's name in the id of its session."""

_SPAN = re.compile(r"[0-9a-f]{16}-([0-9a-f]{16})_(.+)")
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
    """Gives tasks to other agents; a failed call is a result with an error, never an exception.

    Calls share nothing, so any number of them may run at once.
    """

    name = "delegate"

    def __init__(self, coordinator: ModuleCoordinator, config: DelegateConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        self._agents = Agents(coordinator, config)
        self.input_schema = make_schema(config)

    def accesses(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return the agent or the bundle of a call, for the permissions; the id of an earlier session names one."""
        from amplifier_core.permissions import Access  # the published kernel asks for none

        earlier = _SPAN.fullmatch(str(arguments.get("session_id")))
        names = (arguments.get("agent"), earlier[2] if earlier else None)
        return [Access("bundle", name) for name in dict.fromkeys(names) if isinstance(name, str)]

    @property
    def description(self) -> str:
        """The use of the tool, and the agents for calls now."""
        return self._agents.describe()

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Run the agent; a failure has a `message`, a `type`, and the agent's `session_id` if there is one."""
        try:
            delegation = self._prepare(check(self.input_schema, input))
        except DelegationError as failure:
            return make_failed_result(failure)
        await self._emit(delegation.start_event, delegation)
        try:
            result = await self._run(delegation)
        except asyncio.CancelledError:
            await self._emit(CANCELLED, delegation)
            raise
        await self._emit_end(delegation, result)
        return result

    def _prepare(self, given: dict[str, Any]) -> Delegation:
        if "session_id" in given:
            return self._prepare_resume(given)
        if "agent" not in given:
            resumes = self._config.features.session_resume.enabled
            instead = ", or the 'session_id' of an earlier call" if resumes else ""
            raise InvalidInput(f"'agent' is missing; name one of {', '.join(self._agents.purposes())}{instead}")
        return self._prepare_spawn(given)

    def _prepare_resume(self, given: dict[str, Any]) -> Delegation:
        resume = self._capability("session.resume", "resume an agent's session; delegate the task anew")
        taken = _list_parameters(resume)
        call = partial(resume, sub_session_id=given["session_id"], instruction=given["instruction"])
        return self._make_delegation(given.get("agent", ""), given["session_id"], RESUMED, call, taken)

    def _prepare_spawn(self, given: dict[str, Any]) -> Delegation:
        spawn = self._capability("session.spawn", "run agents; do the task here")
        agent = self._agents.find(given["agent"])
        session_id = new_session_id(given["agent"], self._coordinator.session_id)
        taken = _list_parameters(spawn)
        call = partial(
            spawn,
            agent_name=agent,
            instruction=given["instruction"],
            parent_session=getattr(self._coordinator, "session", None),
            agent_configs=self._agents.configs,
            sub_session_id=session_id,
            tool_inheritance=self._config.inheritance("tools"),
            hook_inheritance=self._config.inheritance("hooks"),
            orchestrator_config=None,
            provider_preferences=[Preference(each) for each in given.get("provider_preferences", ())] or None,
            self_delegation_depth=self._agents.self_depth(agent),
            session_metadata={key: given[key] for key in ("agent", "model_role") if key in given},
            parent_messages=None,
            **self._choose_extras(given, taken),
        )
        return self._make_delegation(given["agent"], session_id, SPAWNED, call, taken)

    @staticmethod
    def _choose_extras(given: dict[str, Any], taken: frozenset[str]) -> dict[str, Any]:
        """Return the optional arguments that the program takes. Raises `DelegationError` for another context."""
        if given.get("context_depth", "none") != "none" and "context_depth" not in taken:
            raise DelegationError(
                "ContextUnavailable",
                "this program cannot pass the conversation on; leave context_depth out, and write everything the agent "
                "must know into the instruction",
            )
        return {key: given[key] for key in (*_CONTEXT, "model_role") if key in given and key in taken}

    def _make_delegation(
        self, agent: str, session_id: str, start_event: str, call: Capability, taken: frozenset[str]
    ) -> Delegation:
        """Return the delegation; a program that takes a time limit applies it, as it stores the partial work."""
        limit = self._config.timeout
        if limit is not None and "timeout" in taken:
            call, limit = partial(call, timeout=limit), None
        offered = self._coordinator.get_capability("session.resume") is not None
        resumable = self._config.features.session_resume.enabled and offered
        return Delegation(agent, session_id, start_event, call, limit, tuple(self._agents.purposes()), resumable)

    def _capability(self, name: str, what: str) -> Capability:
        capability: Capability | None = self._coordinator.get_capability(name)
        if capability is None:
            raise DelegationError("Unavailable", f"this program offers no '{name}', so it cannot {what}")
        return capability

    async def _run(self, delegation: Delegation) -> ToolResult:
        limit = asyncio.timeout(delegation.limit)
        try:
            async with limit:
                return make_result(delegation, await delegation.run())
        except Exception as error:
            expired = delegation.limit if limit.expired() else None
            return make_failed_result(make_failure(delegation, error, expired))

    async def _emit_end(self, delegation: Delegation, result: ToolResult) -> None:
        status = result.output.get("status") if isinstance(result.output, dict) else None
        if result.success:
            await self._emit(COMPLETED, delegation, success=True, status=status)
        elif status == "cancelled":
            await self._emit(CANCELLED, delegation)
        else:
            error = result.error or {}
            await self._emit(ERROR, delegation, error=error.get("message"), error_type=error.get("type"))

    async def _emit(self, event: str, delegation: Delegation, **more: Any) -> None:
        hooks = getattr(self._coordinator, "hooks", None)
        if hooks is not None:
            about = {"agent": delegation.agent, "sub_session_id": delegation.session_id}
            await hooks.emit(event, {**about, "parent_session_id": self._coordinator.session_id, **more})


def _list_parameters(capability: Capability) -> frozenset[str]:
    """Return the names of a capability's declared parameters."""
    try:
        return frozenset(inspect.signature(capability).parameters)
    except (TypeError, ValueError):
        return frozenset()


def new_session_id(agent: str, parent_id: str | None) -> str:
    """Return an id for an agent's session in the published form: `<parent span>-<own span>_<agent>`.

    A span is 16 hex digits; the parent's comes from its id, or is a hash of it.
    """
    parent = parent_id or ""
    span = _SPAN.fullmatch(parent)
    before = span[1] if span else sha256(parent.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    name = re.sub(r"[^a-z0-9]+", "-", agent.lower())[-LONGEST_NAME:].strip("-")
    return f"{before}-{secrets.token_hex(8)}_{name or 'agent'}"
