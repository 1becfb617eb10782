"""Make sessions of agents by name: the capabilities `session.spawn` and `session.resume` for modules.

An agent is an entry of the bundle's `agents`, `self` (the session's own bundle), or another bundle: a path, a URL, a
registered name or `name:path`.

What makes sessions is imported by the first call: a session that makes none need not wait for it.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from amplifier_core.errors import SessionConflict, SessionNotFound, UnknownName
from amplifier_core.frozen import frozen, slotted
from amplifier_core.transcript import Transcript

from ..bundle.preferences import ProviderPreference, prefer_providers_with_resolution
from ..documents.dicts import known_members
from ..documents.local_paths import is_remote
from ..paths import project_of
from ..sessions.documents import SessionDocuments
from ..sessions.file_changes import FileChanges
from ..sessions.held import running_call
from ..sessions.history import turn_starts
from ..sessions.records import AGENT
from .child_notes import ChildNotes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from weakref import ReferenceType

    from amplifier_core.documents import DocumentStore
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message
    from amplifier_core.triggers import TriggerEvent

    from ..bundle.model import Bundle
    from ..bundle.prepared import PreparedBundle
    from ..bundle.registry import BundleRegistry
    from ..events import Emitter
    from .child import Spawn
    from .inheritance import Depth, Scope

SELF = "self"

TERMS = "terms"
"""The member of a record's metadata with the `Terms` of its session, for resuming it."""


@frozen
class Terms:
    """The options of an agent's session when it was made, besides its instruction; see `AgentSpawner.spawn`."""

    tool_inheritance: Mapping[str, Sequence[str]] | None = None
    hook_inheritance: Mapping[str, Sequence[str]] | None = None
    orchestrator_config: Mapping[str, Any] | None = None
    provider_preferences: Sequence[Any] | None = None
    self_delegation_depth: int = 0
    runner: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON, with secrets redacted."""
        from amplifier_core.utils.secrets import redact_all

        data = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.provider_preferences:
            wanted = [ProviderPreference.of(each) for each in self.provider_preferences]
            data["provider_preferences"] = [each.to_dict() for each in wanted]
        kept: dict[str, Any] = redact_all({name: value for name, value in data.items() if value})
        return kept

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Terms:
        """Read the output of `to_dict`."""
        return cls(**known_members(cls, data))


@slotted
class AgentSpawner:
    """Makes sessions of agents for one session; `capabilities_of` offers it to that session's modules.

    `take` sets the session once it is made. A call may name another parent.
    """

    prepared: PreparedBundle
    store: SessionStore | None = None
    router: Emitter | None = None
    plugins: Plugins | None = None
    session: ReferenceType[AmplifierSession] | None = None
    """The session itself holds the capabilities: a weak reference makes no ring of them."""
    working_dir: str | None = None
    """The folder of the project that its events belong to; None: the current one."""

    def capabilities_of(self, session_id: str, cause: TriggerEvent | None = None) -> dict[str, Any]:
        """Return the capabilities of a session before its modules are mounted; `cause` is the event that woke it."""
        capabilities: dict[str, Any] = {"session.spawn": self.spawn, "session.resume": self.resume}
        if self.store is not None:
            notes = ChildNotes(self.store, session_id)
            capabilities |= {"session.children": notes.children, "session.annotate": notes.annotate}
            capabilities["session.undo"] = FileChanges(session_id, self._read_history)
        keeps_documents = hasattr(self.store, "write_documents")  # `isinstance` would cost a spawn a tenth of its calls
        if self.router is None and not keeps_documents:
            return capabilities
        event_id, depth = (cause.event_id, cause.depth) if cause else (None, 0)
        project = project_of(self.working_dir)
        if self.router is not None:
            from ..events import SessionEmitter

            capabilities["event.emit"] = SessionEmitter(self.router, session_id, event_id, depth, project).emit
        if keeps_documents:
            store, publish = cast("DocumentStore", self.store), getattr(self.router, "publish", None)
            documents = SessionDocuments(store, project, session_id, cause=event_id, depth=depth, publish=publish)
            capabilities["documents"] = documents
        return capabilities

    def _read_history(self) -> Sequence[Message]:
        session = self.session() if self.session is not None else None
        return session.transcript if session is not None else ()

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
        provider_override: str | None = None,
        model_override: str | None = None,
        again: bool = False,
    ) -> dict[str, Any]:
        """Run `instruction` in a session of an agent.

        Returns `output`, `session_id`, `status`, `turn_count` and `metadata` (`agent`, `usage`, `duration` in seconds).
        The agent has its own modules over those of the parent. `tool_inheritance` and `hook_inheritance` exclude some
        of the parent's tools and hooks (`exclude_tools`), or list the only ones (`inherit_tools`). `parent_messages`
        are the beginning of the history. `provider_override` and `model_override` are a preference, unless there are
        `provider_preferences`; a model without a provider is for the provider with the highest priority. With
        `use_subprocess`, or a `runner` in the agent's entry, the session does not run in this process. `again` goes on
        with the session `sub_session_id` where there is one, and asks a finished one nothing more: for a call with
        several sessions, that may run again. Raises `UnknownName`, and the errors of `spawn_bundle`.
        """
        parent = self._parent(parent_session)
        earlier = await self._find_earlier(parent, instruction, sub_session_id if again else None)
        if earlier is not None:
            return await self.resume(*earlier, parent, timeout=timeout)
        prepared = await self._resolve(agent_name, agent_configs)
        if not provider_preferences and (provider_override or model_override):
            provider_preferences = [_prefer(prepared, parent, provider_override, model_override)]
        terms = Terms(
            tool_inheritance,
            hook_inheritance,
            orchestrator_config,
            provider_preferences,
            self_delegation_depth,
            self._runner_of(agent_name, agent_configs, use_subprocess=use_subprocess),
        )
        spawn = await self._spawn(agent_name, prepared, terms, parent, instruction, sub_session_id)
        if parent_messages is not None:
            spawn.transcript, spawn.turns = Transcript(parent_messages), len(turn_starts(parent_messages))
        else:
            from .inheritance import inherit_history

            history = await inherit_history(parent, context_depth, context_scope, context_turns)
            spawn.transcript, spawn.turns = history
        spawn.metadata = {**(session_metadata or {}), AGENT: agent_name, TERMS: terms.to_dict()}
        return await _run_for_call(spawn, agent_name, timeout)

    async def make_spawn(
        self, agent_name: str, instruction: str, session_id: str | None = None, *, runner: str | None = None
    ) -> Spawn:
        """Return the spawn of a session of an agent, for `prepare_spawn`. Raises `UnknownName`."""
        prepared = await self._resolve(agent_name, None)
        runner = runner or self._runner_of(agent_name, None, use_subprocess=False)
        terms = Terms(runner=runner)
        spawn = await self._spawn(agent_name, prepared, terms, self._parent(None), instruction, session_id)
        spawn.metadata = {AGENT: agent_name, TERMS: terms.to_dict()}
        return spawn

    async def resume(
        self,
        sub_session_id: str,
        instruction: str,
        parent_session: AmplifierSession | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - handed on
    ) -> dict[str, Any]:
        """Give a stored session of an agent its next turn, on its own terms; return the same as `spawn`.

        Tool calls cut by a crash or a time limit are recorded as interrupted first. Raises `SessionNotFound`, and
        `SessionConflict` for a session of another parent.
        """
        if self.store is None:
            raise SessionNotFound(sub_session_id)
        record = await self.store.get(sub_session_id)
        parent = self._parent(parent_session)
        await self._check_parent(record, parent.session_id)
        agent = str(record.metadata.get(AGENT) or record.bundle_source or record.bundle)
        terms = Terms.from_dict(record.metadata.get(TERMS) or {})
        prepared = await self._resolve(agent, None)
        spawn = await self._spawn(agent, prepared, terms, parent, instruction, sub_session_id)
        return await _run_for_call(spawn, agent, timeout, resume=True)

    async def _find_earlier(
        self, parent: AmplifierSession, instruction: str, own: str | None
    ) -> tuple[str, str] | None:
        """Return the session of a call that runs again, and what is left to ask of it; None for a first run."""
        if own is None:
            call = running_call(parent)
            held = call[0].session_of(call[1]) if call is not None else None
            return None if held is None else (held, instruction)
        try:
            record = await self.store.get(own) if self.store is not None else None
        except SessionNotFound:
            record = None
        return None if record is None else (own, "" if record.status == "completed" else instruction)

    async def _check_parent(self, record: SessionRecord, session_id: str) -> None:
        """Return for a session made by this one, or by a source of this one. Raises `SessionConflict`."""
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
        parent = given or (self.session() if self.session is not None else None)
        assert parent is not None, "the spawner was not told its session"
        return parent

    async def _resolve(self, agent: str, configs: Mapping[str, Any] | None) -> PreparedBundle:
        """Return the bundle of an agent: one of the session's own agents, else the bundle at a place.

        A model may have chosen the place, so that bundle must be trusted, also in a program that asks for nothing else.
        """
        import asyncio

        from ..bundle.registry import BundleRegistry
        from ..security import load_trusted
        from .agent_plans import agent_bundle

        if agent == SELF:
            return self.prepared
        known = {**self.prepared.bundle.agents, **(configs or {})}
        if agent in known:
            return agent_bundle(self.prepared, agent, known[agent])
        registry = BundleRegistry(plugins=self.plugins)
        names = _known_bundles(self.prepared.bundle, registry)
        if _is_place(agent, names):
            base = self.prepared.bundle.base_path
            path = str(base / agent) if base is not None and agent.startswith(("./", "../")) else agent
            packages = registry.folders_of_packages()
            bundle = await asyncio.to_thread(load_trusted, path, names=names, installed=packages, fetches=False)
            return await bundle.prepare()
        raise UnknownName("agent", agent, [*known, SELF])

    def _runner_of(self, agent: str, configs: Mapping[str, Any] | None, *, use_subprocess: bool) -> str | None:
        """Return the name of an agent's runner; None: the process of its parent."""
        entry = {**self.prepared.bundle.agents, **(configs or {})}.get(agent)
        named = entry.get("runner") if isinstance(entry, dict) else None
        return str(named) if named else ("subprocess" if use_subprocess else None)

    def _config(self, prepared: PreparedBundle, parent: AmplifierSession, terms: Terms) -> dict[str, Any]:
        from .agent_plans import choose_modules, with_orchestrator_config
        from .inheritance import child_config

        own = self.prepared.bundle.spawn
        config = child_config(
            prepared.mount_plan,
            parent.config,
            providers=True,
            tools=choose_modules(parent.config.get("tools") or (), terms.tool_inheritance, own, "tools"),
            hooks=choose_modules(parent.config.get("hooks") or (), terms.hook_inheritance, own, "hooks"),
        )
        return with_orchestrator_config(config, terms.orchestrator_config)

    async def _spawn(
        self,
        agent: str,
        prepared: PreparedBundle,
        terms: Terms,
        parent: AmplifierSession,
        instruction: str,
        session_id: str | None,
    ) -> Spawn:
        from .child import Spawn, spawn_request
        from .runners import InProcessRunner, find_runner

        config = self._config(prepared, parent, terms)
        if terms.provider_preferences:
            wanted = terms.provider_preferences
            config = await prefer_providers_with_resolution(config, wanted, parent.coordinator)
        name = prepared.bundle.name if agent == SELF or _is_place(agent, {}) else agent.rpartition(":")[2]
        runner = InProcessRunner() if terms.runner is None else find_runner(self.plugins, terms.runner)
        return Spawn(
            prepared=prepared,
            request=spawn_request(parent, prepared, instruction, config, session_id, name),
            parent=parent,
            transcript=Transcript(),
            store=self.store,
            router=self.router,
            plugins=self.plugins,
            runner=runner,
            capabilities={"self_delegation_depth": terms.self_delegation_depth},
        )

    def take(self, session: AmplifierSession) -> None:
        """Spawn for `session` from now on."""
        self.session = ref(session)


def _prefer(
    prepared: PreparedBundle, parent: AmplifierSession, provider: str | None, model: str | None
) -> ProviderPreference:
    """Return the preference for a model, by default of the first provider of the agent or of its parent."""
    from .agent_plans import first_provider

    return ProviderPreference(provider or first_provider(prepared.mount_plan) or first_provider(parent.config), model)


async def _run_for_call(spawn: Spawn, agent: str, timeout: float | None, *, resume: bool = False) -> dict[str, Any]:  # noqa: ASYNC109 - handed on
    """Run a spawn and describe its result; the tool call of its parent is held while a call of the child is."""
    from ..spawn import describe_result, spawn_prepared

    result = await spawn_prepared(spawn, timeout, resume=resume)
    call = running_call(spawn.parent)
    if spawn.held and call is not None:
        held, call_id, tool = call
        await held.hold(call_id, tool, spawn.request.session_id)
    return describe_result(result, **{AGENT: agent})


def check_agent(agent: str, bundle: Bundle, plugins: Plugins | None) -> None:
    """Raise `UnknownName` for an agent that is neither one of the bundle, nor a bundle by a name or a place."""
    from ..bundle.registry import BundleRegistry

    known = [*bundle.agents, SELF]
    if agent not in known and not _is_place(agent, _known_bundles(bundle, BundleRegistry(plugins=plugins))):
        raise UnknownName("agent", agent, known)


def _known_bundles(bundle: Bundle, registry: BundleRegistry) -> dict[str, str]:
    """Return the places of the bundles that a bundle may name."""
    return {**registry.names(), **{name: str(root) for name, root in bundle.source_base_paths.items()}}


def _is_place(agent: str, names: Mapping[str, str]) -> bool:
    if is_remote(agent) or agent.startswith(("./", "../", "/", "~/", "file:")) or agent.partition(":")[0] in names:
        return True
    return Path(agent).suffix in (".md", ".yaml", ".yml") and Path(agent).is_file()
