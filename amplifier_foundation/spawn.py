"""The one way in which a session makes a session.

`spawn_bundle` is three steps, each usable alone: `prepare_spawn` decides everything, `run_spawn` lives the child's
life, `settle_spawn` keeps and tells the outcome. A background session settles differently (with its delivery, in one
transaction), and shares the rest.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionExists, SessionNotFound, SpawnTimeout
from amplifier_core.events import SESSION_COMPLETED, SESSION_ERROR
from amplifier_core.ids import new_session_id, validate_session_id
from amplifier_core.moments import SpawnOutcome, SpawnRequest
from amplifier_core.storage import SessionRecord

from .bundles.load import load_bundle
from .bundles.model import Bundle, PreparedBundle, merge_module_lists
from .history import Depth, Scope, inherited, turn_starts
from .presence import KEY as PROCESS
from .presence import this_process
from .recording import recorded
from .runners import InProcessRunner, final_answer
from .session_storage import as_session_store
from .stored_history import stored_transcript, turns_so_far

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from amplifier_core.moments import Runner
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStorage, SessionStore
    from amplifier_core.transcript import Transcript
    from amplifier_core.triggers import TriggerEvent

    from .events import EventRouter

Inherit = bool | list[str]


@dataclass(frozen=True, slots=True)
class SpawnResult:
    """What a spawned session gave back; `duration` in seconds."""

    output: str
    session_id: str
    turn_count: int
    status: str = "completed"
    duration: float = 0.0


@dataclass(slots=True)
class Spawn:
    """One spawn on its way: what was decided, and, while it runs, what came of it."""

    prepared: PreparedBundle
    request: SpawnRequest
    parent: AmplifierSession
    transcript: Transcript
    recorded: int = 0
    """How many messages of the transcript are stored already."""
    turns: int = 0
    """How many turns those are."""
    resumed: bool = False
    store: SessionStore | None = None
    router: EventRouter | None = None
    plugins: Plugins | None = None
    runner: Runner = field(default_factory=InProcessRunner)
    cause: TriggerEvent | None = None
    """The event that woke it: what it emits itself continues the event's chain."""
    observe: Callable[[AmplifierSession], None] | None = None
    """Called with the child when its modules are mounted, before its turn."""
    error: BaseException | None = None
    stopped: bool = False
    """Whether the child ended early because it was asked to."""


async def spawn_bundle(
    bundle: PreparedBundle | Bundle | str,
    instruction: str,
    parent_session: AmplifierSession,
    inherit_providers: bool = True,
    inherit_tools: Inherit = False,
    inherit_hooks: Inherit = False,
    context_depth: Depth = "none",
    context_scope: Scope = "conversation",
    context_turns: int = 5,
    session_id: str | None = None,
    session_name: str | None = None,
    session_storage: SessionStore | SessionStorage | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - a published signature
    event_router: EventRouter | None = None,
    *,
    resume: bool = False,
    plugins: Plugins | None = None,
) -> SpawnResult:
    """Run `instruction` in a new session made from `bundle`, a child of `parent_session`; return what it answered.

    The child takes the parent's session section and providers where it has none of its own, the tools and hooks that
    `inherit_*` names (True: all), and the part of the history that `context_depth` (none, recent: `context_turns`
    turns, all) and `context_scope` (conversation, agents, full) say. With a `session_storage` every message is durable
    before the next step is taken. `session:completed` or `session:error` is emitted once.

    Raises `BundleError`, `SpawnRefused`, `SessionExists` (an id that is stored already, without `resume`),
    `SpawnTimeout` after `timeout` seconds, and what the child's orchestrator raises.
    """
    prepared = await prepared_bundle(bundle)
    config = child_config(
        prepared.mount_plan,
        parent_session.config,
        providers=inherit_providers,
        tools=inherit_tools,
        hooks=inherit_hooks,
    )
    spawn = Spawn(
        prepared=prepared,
        request=spawn_request(parent_session, prepared, instruction, config, session_id, session_name),
        parent=parent_session,
        transcript=inherited(parent_session.transcript, context_depth, context_scope, context_turns),
        store=as_session_store(session_storage) if session_storage is not None else None,
        router=event_router,
        plugins=plugins,
    )
    await prepare_spawn(spawn, resume=resume)
    outcome = await run_spawn(spawn, timeout)
    await settle_spawn(spawn, outcome)
    if spawn.error is not None:
        raise spawn.error
    return SpawnResult(outcome.output, outcome.session_id, outcome.turn_count, outcome.status, outcome.duration)


async def prepared_bundle(bundle: PreparedBundle | Bundle | str) -> PreparedBundle:
    """Return `bundle` ready to make sessions from: loaded when it is a path, prepared when it is not."""
    if isinstance(bundle, str):
        bundle = await load_bundle(bundle)
    return await bundle.prepare() if isinstance(bundle, Bundle) else bundle


def child_config(
    own: Mapping[str, Any], parent: Mapping[str, Any], *, providers: bool, tools: Inherit, hooks: Inherit
) -> dict[str, Any]:
    """Return the child's mount plan: a deep copy of its own, with what it takes from its parent."""
    config = deepcopy(dict(own))
    session = dict(config.get("session") or {})
    for key, value in deepcopy(dict(parent.get("session") or {})).items():
        session.setdefault(key, value)
    config["session"] = session
    if providers and not config.get("providers"):
        config["providers"] = deepcopy(list(parent.get("providers") or ()))
    for section, wanted in (("tools", tools), ("hooks", hooks)):
        taken = deepcopy(_chosen(parent.get(section) or (), wanted))
        if taken:
            config[section] = merge_module_lists(taken, config.get(section) or [])
    return config


def _chosen(entries: Sequence[Mapping[str, Any]], wanted: Inherit) -> list[dict[str, Any]]:
    if isinstance(wanted, bool):
        return [dict(entry) for entry in entries] if wanted else []
    return [dict(entry) for entry in entries if entry.get("module") in wanted]


def spawn_request(
    parent: AmplifierSession,
    prepared: PreparedBundle,
    instruction: str,
    config: dict[str, Any],
    session_id: str | None,
    session_name: str | None,
) -> SpawnRequest:
    """Return what the plugins and the runner are told of a spawn. Raises `InvalidSessionId`."""
    name = session_name or prepared.bundle.name or "session"
    capability = parent.coordinator.get_capability
    return SpawnRequest(
        session_id=validate_session_id(session_id) if session_id else new_session_id(name),
        parent_id=parent.session_id,
        bundle=prepared.bundle.name,
        instruction=instruction,
        config=config,
        working_dir=str(capability("session.working_dir") or ""),
        depth=int(capability("session.depth") or 0) + 1,
        metadata={"name": name},
    )


async def prepare_spawn(spawn: Spawn, *, resume: bool = False) -> None:
    """Ask the plugins, then store the session's record, or load what an earlier attempt stored of it.

    Raises `SpawnRefused`, `SessionExists`.
    """
    if spawn.plugins is not None:
        await spawn.plugins.before_spawn(spawn.request)
    if spawn.store is None:
        return
    stored = await _stored(spawn.store, spawn.request.session_id)
    if stored is None:
        await _create(spawn)
    elif resume:
        await _load(spawn, stored)
    else:
        raise SessionExists(spawn.request.session_id)


async def _stored(store: SessionStore, session_id: str) -> SessionRecord | None:
    try:
        return await store.get(session_id)
    except SessionNotFound:
        return None


async def _create(spawn: Spawn) -> None:
    assert spawn.store is not None
    await spawn.store.create(
        new_record(
            spawn.prepared,
            spawn.request.session_id,
            parent_id=spawn.request.parent_id,
            name=str(spawn.request.metadata.get("name", "")),
            project=spawn.request.working_dir,
            config=spawn.request.config,
            event_id=spawn.cause.event_id if spawn.cause else None,
        )
    )


def new_record(
    prepared: PreparedBundle, session_id: str, *, config: Mapping[str, Any] | None = None, **fields: Any
) -> SessionRecord:
    """Return the record of a session made from `prepared`; secrets in its config are redacted."""
    from amplifier_core.utils import redact_secrets

    return SessionRecord(
        session_id=session_id,
        **bundle_identity(prepared),
        config=redact_secrets(dict(config if config is not None else prepared.mount_plan)),
        metadata={PROCESS: this_process()},
        **fields,
    )


def taken_up(record: SessionRecord) -> dict[str, Any]:
    """Return the fields of a record that change when this process goes on with its session."""
    return {"status": "running", "error": None, "metadata": {**record.metadata, PROCESS: this_process()}}


def bundle_identity(prepared: PreparedBundle) -> dict[str, Any]:
    """Return the fields of a record that say which bundle its session is made from."""
    bundle = prepared.bundle
    return {"bundle": bundle.name, "bundle_source": str(bundle.source_path or ""), "bundle_digest": bundle.digest}


async def _load(spawn: Spawn, record: SessionRecord) -> None:
    """Take up what was stored: the history, with the calls that a crash cut recorded as interrupted."""
    assert spawn.store is not None
    spawn.transcript = stored_transcript(spawn.store, record)
    spawn.recorded, spawn.turns = record.message_count, turns_so_far(record, spawn.transcript)
    spawn.resumed = spawn.recorded > 0
    if spawn.resumed:
        spawn.request = replace(spawn.request, instruction="")
    await spawn.store.update(spawn.request.session_id, **taken_up(record))


async def run_spawn(spawn: Spawn, timeout: float | None = None) -> SpawnOutcome:  # noqa: ASYNC109 - handed on
    """Live the child's whole life and return how it ended; a cancellation of this task is stored in `spawn.error`."""
    began = time.monotonic()
    output = ""
    try:
        async with asyncio.timeout(timeout) as limit:
            output = await _answer(spawn)
    except TimeoutError as error:
        spawn.error = SpawnTimeout(spawn.request.session_id, timeout or 0.0) if limit.expired() else error
    except BaseException as error:
        spawn.error = error
    return SpawnOutcome(
        session_id=spawn.request.session_id,
        parent_id=spawn.request.parent_id,
        status="cancelled" if spawn.stopped else _status(spawn.error),
        output=output,
        turn_count=spawn.turns + len(turn_starts(spawn.transcript.since(spawn.recorded))),
        duration=time.monotonic() - began,
        error=_cause(spawn.error),
    )


async def _answer(spawn: Spawn) -> str:
    finished = final_answer(spawn.transcript) if spawn.resumed else None
    if finished is not None:
        return finished
    return await spawn.runner.run(spawn.request, lambda request: _child_session(spawn, request))


def _status(error: BaseException | None) -> str:
    if error is None:
        return "completed"
    return "failed" if isinstance(error, Exception) else "cancelled"


def _cause(error: BaseException | None) -> str | None:
    if error is None:
        return None
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@contextmanager
def linked(parent: AmplifierSession, child: AmplifierSession) -> Iterator[None]:
    """Let a stop of the parent reach the child while the block runs."""
    token = child.coordinator.cancellation
    parent.coordinator.cancellation.register_child(token)
    try:
        yield
    finally:
        parent.coordinator.cancellation.unregister_child(token)


@asynccontextmanager
async def _child_session(spawn: Spawn, request: SpawnRequest) -> AsyncIterator[AmplifierSession]:
    """Make the child in this process, linked to its parent; store its last messages and end it on leaving."""
    session = await spawn.prepared.create_session(
        session_id=request.session_id,
        parent_id=request.parent_id,
        approval_system=spawn.parent.coordinator.approval_system,
        display_system=spawn.parent.coordinator.display_system,
        session_cwd=request.working_dir or None,
        is_resumed=spawn.resumed,
        config=dict(request.config),
        transcript=spawn.transcript,
        plugins=spawn.plugins,
        capabilities=_capabilities(spawn, request),
    )
    async with recorded(session, spawn.store, spawn.recorded):
        if spawn.observe is not None:
            spawn.observe(session)
        try:
            with linked(spawn.parent, session):
                yield session
        finally:
            spawn.stopped = session.coordinator.cancellation.is_cancelled


def _capabilities(spawn: Spawn, request: SpawnRequest) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"session.depth": request.depth}
    if spawn.router is not None:
        cause, depth = (spawn.cause.event_id, spawn.cause.depth) if spawn.cause else (None, 0)
        emitter = spawn.router.create_session_emitter(request.session_id, cause=cause, depth=depth)
        capabilities["event.emit"] = emitter.emit
    return capabilities


async def settle_spawn(spawn: Spawn, outcome: SpawnOutcome) -> None:
    """Store the outcome, emit `session:completed` or `session:error`, and tell the plugins."""
    if spawn.store is not None:
        await spawn.store.update(outcome.session_id, **record_changes(outcome))
    if spawn.router is not None:
        name, data = outcome_event(spawn, outcome)
        await spawn.router.emit(name, data, outcome.session_id)
    if spawn.plugins is not None:
        await spawn.plugins.after_spawn(outcome)


def record_changes(outcome: SpawnOutcome) -> dict[str, Any]:
    """Return the fields of the session's record that its outcome changes."""
    return {"status": outcome.status, "turn_count": outcome.turn_count, "error": outcome.error}


def outcome_event(spawn: Spawn, outcome: SpawnOutcome) -> tuple[str, dict[str, Any]]:
    """Return the name and data of the event that tells how a session ended."""
    data: dict[str, Any] = {
        "session_id": outcome.session_id,
        "parent_id": outcome.parent_id,
        "session_name": spawn.request.metadata.get("name"),
        "bundle_name": spawn.request.bundle,
        "status": outcome.status,
        "turn_count": outcome.turn_count,
    }
    if outcome.error is None:
        return SESSION_COMPLETED, {**data, "output": outcome.output, "success": True}
    return SESSION_ERROR, {**data, "error": outcome.error, "error_type": type(spawn.error).__name__}
