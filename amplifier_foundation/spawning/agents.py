"""Agents by name: the capabilities `session.spawn` and `session.resume`, through which modules make sessions.

An agent is an entry of the bundle's `agents`, `self` (the session's own bundle), or another bundle: a path, a URL, a
registered name or `name:path`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict, SessionNotFound, UnknownName
from amplifier_core.transcript import Transcript

from ..bundles.merge import deep_merge
from ..bundles.model import Bundle
from ..bundles.paths import is_remote
from ..bundles.prepared import PreparedBundle
from ..history import turn_starts
from ..preferences import ProviderPreference, apply_provider_preferences_with_resolution
from ..spawn import SpawnResult, spawn_prepared
from .child import Spawn, spawn_request
from .inheritance import Beginning, Depth, Inherit, Scope, child_config, inherited
from .records import AGENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message
    from amplifier_core.triggers import TriggerEvent

    from ..events import EventRouter

SELF = "self"

TERMS = "terms"
"""The member of it that says how its session was made, so that it goes on the same way."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What was said of an agent's session when it was made, besides its instruction; see `AgentSpawner.spawn`."""

    tool_inheritance: Mapping[str, Sequence[str]] | None = None
    hook_inheritance: Mapping[str, Sequence[str]] | None = None
    orchestrator_config: Mapping[str, Any] | None = None
    provider_preferences: Sequence[Any] | None = None
    self_delegation_depth: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it; secrets are redacted."""
        from amplifier_core.utils import redact_secrets

        told = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.provider_preferences:
            wanted = [_preference(each) for each in self.provider_preferences]
            told["provider_preferences"] = [{"provider": each.provider, "model": each.model} for each in wanted]
        kept: dict[str, Any] = redact_secrets({name: value for name, value in told.items() if value})
        return kept

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Terms:
        """Return what `to_dict` wrote."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})


@dataclass(slots=True)
class AgentSpawner:
    """Makes sessions of agents for one session; `capabilities_of` is what it offers to that session's modules.

    `take` tells it the session when that is made: who calls may name another parent.
    """

    prepared: PreparedBundle
    store: SessionStore | None = None
    router: EventRouter | None = None
    plugins: Plugins | None = None
    session: AmplifierSession | None = None

    def capabilities_of(self, session_id: str, cause: TriggerEvent | None = None) -> dict[str, Any]:
        """Return what a session is given before its modules are mounted; `cause` is the event that woke it."""
        capabilities: dict[str, Any] = {"session.spawn": self.spawn, "session.resume": self.resume}
        if self.router is not None:
            event_id, depth = (cause.event_id, cause.depth) if cause else (None, 0)
            emitter = self.router.create_session_emitter(session_id, cause=event_id, depth=depth)
            capabilities["event.emit"] = emitter.emit
        return capabilities

    async def spawn(
        self,
        agent_name: str,
        instruction: str,
        parent_session: AmplifierSession | None = None,
        agent_configs: Mapping[str, Any] | None = None,
        sub_session_id: str | None = None,
        tool_inheritance: Mapping[str, Sequence[str]] | None = None,
        hook_inheritance: Mapping[str, Sequence[str]] | None = None,
        orchestrator_config: Mapping[str, Any] | None = None,
        provider_preferences: Sequence[Any] | None = None,
        self_delegation_depth: int = 0,
        session_metadata: Mapping[str, Any] | None = None,
        parent_messages: Sequence[Message] | None = None,
        use_subprocess: bool = False,
        *,
        context_depth: Depth = "none",
        context_scope: Scope = "conversation",
        context_turns: int = 5,
        timeout: float | None = None,  # noqa: ASYNC109 - handed on
    ) -> dict[str, Any]:
        """Run `instruction` in a session of an agent.

        Returns `output`, `session_id`, `status`, `turn_count` and `metadata` (`agent`, `usage`, `duration` in seconds).
        The agent has its own modules over those of the parent: its tools and hooks but what `tool_inheritance` and
        `hook_inheritance` exclude (`exclude_tools`) or do not list (`inherit_tools`). `parent_messages`, where given,
        are the history that it begins with. Raises `UnknownName`, and what `spawn_bundle` raises.
        """
        parent = self._parent(parent_session)
        prepared = await self._resolve(agent_name, agent_configs)
        terms = Terms(
            tool_inheritance, hook_inheritance, orchestrator_config, provider_preferences, self_delegation_depth
        )
        spawn = await self._spawn(agent_name, prepared, terms, parent, instruction, sub_session_id)
        spawn.transcript, spawn.turns = (
            _beginning(parent_messages)
            if parent_messages is not None
            else await inherited(parent, context_depth, context_scope, context_turns)
        )
        spawn.metadata = {**(session_metadata or {}), AGENT: agent_name, TERMS: terms.to_dict()}
        return _told(agent_name, await spawn_prepared(spawn, timeout))

    async def resume(
        self,
        sub_session_id: str,
        instruction: str,
        parent_session: AmplifierSession | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - handed on
    ) -> dict[str, Any]:
        """Give a stored session of an agent its next turn, on the terms it was made on; return what `spawn` does.

        What a crash or a time limit cut is recorded as interrupted first. Raises `SessionNotFound`, and
        `SessionConflict` for a session that somebody else made.
        """
        if self.store is None:
            raise SessionNotFound(sub_session_id)
        record = await self.store.get(sub_session_id)
        parent = self._parent(parent_session)
        await self._own(record, parent.session_id)
        agent = str(record.metadata.get(AGENT) or record.bundle_source or record.bundle)
        terms = Terms.from_dict(record.metadata.get(TERMS) or {})
        prepared = await self._resolve(agent, None)
        spawn = await self._spawn(agent, prepared, terms, parent, instruction, sub_session_id)
        return _told(agent, await spawn_prepared(spawn, timeout, resume=True, anew=True))

    async def _own(self, record: SessionRecord, session_id: str) -> None:
        """Return if this session made the recorded one, or one whose history it shares did."""
        assert self.store is not None  # it holds the record
        maker: str | None = session_id
        while maker is not None:
            if record.parent_id == maker:
                return
            try:
                maker = (await self.store.get(maker)).fork_of
            except SessionNotFound:
                break
        raise SessionConflict(record.session_id, f"session '{record.session_id}' was not made by this one")

    def _parent(self, given: AmplifierSession | None) -> AmplifierSession:
        parent = given or self.session
        assert parent is not None, "the spawner was not told its session"
        return parent

    async def _resolve(self, agent: str, configs: Mapping[str, Any] | None) -> PreparedBundle:
        """Return the bundle of an agent: of the session's own agents first, then of those that are places."""
        from ..bundles.load import load_bundle

        if agent == SELF:
            return self.prepared
        known = {**self.prepared.bundle.agents, **(configs or {})}
        if agent in known:
            return _agent_bundle(self.prepared, agent, known[agent])
        names = self._names()
        if _is_place(agent, names):
            base = self.prepared.bundle.base_path
            path = str(base / agent) if base is not None and agent.startswith(("./", "../")) else agent
            return await (await load_bundle(path, registry=names)).prepare()
        raise UnknownName("agent", agent, [*known, SELF])

    def _names(self) -> dict[str, str]:
        """Return the bundles that have a name here: the namespaces of this one, registered ones, packages' own."""
        from ..bundles.registry import BundleRegistry

        own = {name: str(root) for name, root in self.prepared.bundle.source_base_paths.items()}
        return {**BundleRegistry(plugins=self.plugins).names(), **own}

    def _config(self, prepared: PreparedBundle, parent: AmplifierSession, terms: Terms) -> dict[str, Any]:
        own = self.prepared.bundle.spawn
        config = child_config(
            prepared.mount_plan,
            parent.config,
            providers=True,
            tools=_inherited(parent.config.get("tools") or (), terms.tool_inheritance, own, "tools"),
            hooks=_inherited(parent.config.get("hooks") or (), terms.hook_inheritance, own, "hooks"),
        )
        if terms.orchestrator_config:
            spec = config["session"].get("orchestrator")
            spec = {"module": spec} if isinstance(spec, str) else dict(spec or {})
            config["session"]["orchestrator"] = deep_merge(spec, {"config": dict(terms.orchestrator_config)})
        return config

    async def _spawn(
        self,
        agent: str,
        prepared: PreparedBundle,
        terms: Terms,
        parent: AmplifierSession,
        instruction: str,
        session_id: str | None,
    ) -> Spawn:
        config = self._config(prepared, parent, terms)
        config = await _preferring(config, terms.provider_preferences, parent)
        name = _session_name(agent, prepared)
        return Spawn(
            prepared=prepared,
            request=spawn_request(parent, prepared, instruction, config, session_id, name),
            parent=parent,
            transcript=Transcript(),
            store=self.store,
            router=self.router,
            plugins=self.plugins,
            capabilities={"self_delegation_depth": terms.self_delegation_depth},
        )

    def take(self, session: AmplifierSession) -> None:
        """Spawn for `session` from now on."""
        self.session = session


def _is_place(agent: str, names: Mapping[str, str]) -> bool:
    if is_remote(agent) or agent.startswith(("./", "../", "/", "~/", "file:")) or agent.partition(":")[0] in names:
        return True
    return Path(agent).suffix in (".md", ".yaml", ".yml") and Path(agent).is_file()


def _beginning(messages: Sequence[Message]) -> Beginning:
    return Beginning(Transcript(messages), len(turn_starts(messages)))


def _session_name(agent: str, prepared: PreparedBundle) -> str:
    return prepared.bundle.name if agent == SELF or _is_place(agent, {}) else agent.rpartition(":")[2]


def _agent_bundle(prepared: PreparedBundle, name: str, overlay: Mapping[str, Any]) -> PreparedBundle:
    """Return the bundle that an entry of `agents` is: its own sections, with the files of the bundle it stands in."""
    outer = prepared.bundle
    plan = deepcopy(dict(overlay))
    bundle = Bundle(
        name=name.rpartition(":")[2],
        description=str(plan.get("description") or ""),
        session=plan.get("session") or {},
        providers=list(plan.get("providers") or ()),
        tools=list(plan.get("tools") or ()),
        hooks=list(plan.get("hooks") or ()),
        spawn=plan.get("spawn") or {},
        agents=_agents_of(plan, outer),
        instruction=plan.get("instruction"),
        base_path=outer.base_path,
        source_base_paths=dict(outer.source_base_paths),
        local_sources=outer.local_sources,
        source_path=outer.source_path,
        digest=outer.digest,
    )
    return PreparedBundle.of(bundle)


def _agents_of(plan: Mapping[str, Any], outer: Bundle) -> dict[str, Any]:
    wanted = plan.get("agents")
    if wanted == "all":
        return deepcopy(outer.agents)
    if isinstance(wanted, list):
        return {name: deepcopy(outer.agents[name]) for name in wanted if name in outer.agents}
    return dict(wanted) if isinstance(wanted, dict) else {}


def _inherited(
    entries: Sequence[Mapping[str, Any]],
    wanted: Mapping[str, Sequence[str]] | None,
    section: Mapping[str, Any],
    kind: str,
) -> Inherit:
    """Return the modules that a child takes over: what is listed, or all but what is excluded."""
    wanted = wanted or {}
    listed = wanted.get(f"inherit_{kind}", section.get(f"inherit_{kind}", section.get(kind)))
    if isinstance(listed, (list, tuple)):
        return [str(each.get("module") if isinstance(each, dict) else each) for each in listed]
    excluded = {*(section.get(f"exclude_{kind}") or ()), *(wanted.get(f"exclude_{kind}") or ())}
    return [str(entry.get("module")) for entry in entries if entry.get("module") not in excluded]


async def _preferring(
    config: dict[str, Any], preferences: Sequence[Any] | None, parent: AmplifierSession
) -> dict[str, Any]:
    if not preferences:
        return config
    wanted = [_preference(each) for each in preferences]
    return await apply_provider_preferences_with_resolution(config, wanted, parent.coordinator)


def _preference(said: Any) -> ProviderPreference:
    return said if isinstance(said, ProviderPreference) else ProviderPreference.from_dict(said)


def _told(agent: str, result: SpawnResult) -> dict[str, Any]:
    """Return the result as the capabilities give it."""
    return {
        "output": result.output,
        "session_id": result.session_id,
        "status": result.status,
        "turn_count": result.turn_count,
        "metadata": {AGENT: agent, "usage": dict(result.usage), "duration": result.duration},
    }
