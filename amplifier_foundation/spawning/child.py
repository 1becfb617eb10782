"""One spawn on its way: what was decided, and what the store knows of it already."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound
from amplifier_core.ids import new_session_id, validate_session_id
from amplifier_core.moments import SpawnRequest

from ..history import turn_starts
from ..interruptions import resumed_transcript
from ..recording import carried_out
from ..runners import InProcessRunner
from ..stored_history import turns_so_far
from .records import new_record, taken_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_core.moments import Runner
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Transcript
    from amplifier_core.triggers import TriggerEvent

    from ..bundles.model import PreparedBundle
    from ..events import EventRouter
    from ..usage import Usage


@dataclass(slots=True)
class Spawn:
    """One spawn on its way: what was decided, and, while it runs, what came of it."""

    prepared: PreparedBundle
    request: SpawnRequest
    parent: AmplifierSession
    transcript: Transcript
    turns: int = 0
    """How many turns of it there are; those of the child are added when it has ended."""
    begun: int = 0
    """How many messages of it there were before the child began."""
    recorded: int = 0
    """How many messages of the transcript are stored already."""
    is_kept: bool = False
    """Whether the store has it."""
    resumed: bool = False
    store: SessionStore | None = None
    router: EventRouter | None = None
    plugins: Plugins | None = None
    shares: str | None = None
    """The session whose stored history the transcript is the beginning of; None: its parent's, where it is that."""
    runner: Runner = field(default_factory=InProcessRunner)
    cause: TriggerEvent | None = None
    """The event that woke it: what it emits itself continues the event's chain."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """What the child is given besides, before its modules are mounted."""
    observe: Callable[[AmplifierSession], None] | None = None
    """Called with the child when its modules are mounted, before its turn."""
    unattended: bool = False
    """Whether nobody waits for it: what would have to be approved is denied."""
    child: AmplifierSession | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Of its record."""
    usage: Usage | None = None
    error: BaseException | None = None
    stopping: bool = False
    """Whether the child was asked to end."""
    stopped: bool = False
    """Whether it ended early because it, or a session above it, was."""

    def ask_to_stop(self) -> None:
        """Ask the child, or one that is still being made, to end when its running tools have finished."""
        self.stopping = True
        if self.child is not None:
            self.child.coordinator.cancellation.request_graceful()


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


async def prepare_spawn(spawn: Spawn, *, resume: bool = False, anew: bool = False) -> None:
    """Ask the plugins, then store the session's record, or load what an earlier attempt stored of it.

    A session that is resumed goes on with its last turn, or takes the instruction as its next one (`anew`). Raises
    `SpawnRefused`, `SessionExists`. A cancellation meanwhile is raised when the record is written: see `is_kept`.
    """
    if spawn.plugins is not None:
        await spawn.plugins.before_spawn(spawn.request)
    if spawn.store is not None:
        await carried_out(_keep(spawn, spawn.store, resume=resume, anew=anew))
    spawn.begun = len(spawn.transcript)


async def _keep(spawn: Spawn, store: SessionStore, *, resume: bool, anew: bool) -> None:
    stored = await _stored(store, spawn.request.session_id) if resume else None
    if stored is None:
        await _create(spawn, store)
    else:
        await _load(spawn, store, stored, anew=anew)
    spawn.is_kept = True


async def _stored(store: SessionStore, session_id: str) -> SessionRecord | None:
    try:
        return await store.get(session_id)
    except SessionNotFound:
        return None


async def _create(spawn: Spawn, store: SessionStore) -> None:
    source = await _source(spawn, store)
    spawn.recorded = len(spawn.transcript) if source is not None else 0
    record = new_record(
        spawn.prepared,
        spawn.request.session_id,
        parent_id=spawn.request.parent_id,
        fork_of=source,
        fork_at=spawn.recorded or None,
        name=str(spawn.request.metadata.get("name", "")),
        project=spawn.request.working_dir,
        config=spawn.request.config,
        event_id=spawn.cause.event_id if spawn.cause else None,
        metadata=spawn.metadata,
    )
    spawn.metadata = (await store.create(record)).metadata
    if spawn.shares is not None:
        spawn.turns = len(turn_starts(spawn.transcript))


async def _source(spawn: Spawn, store: SessionStore) -> str | None:
    """Return the session whose stored history the child begins with, None when it begins with messages of its own."""
    begun = len(spawn.transcript)
    if not begun or spawn.shares is not None:
        return spawn.shares if begun else None
    if not spawn.transcript.is_fork_of(spawn.parent.transcript):
        return None
    parent = await _stored(store, spawn.parent.session_id)
    return parent.session_id if parent is not None and parent.message_count >= begun else None


async def _load(spawn: Spawn, store: SessionStore, record: SessionRecord, *, anew: bool) -> None:
    """Take up what was stored: the history, with the calls that a crash cut recorded as interrupted."""
    spawn.transcript = await resumed_transcript(store, record)
    spawn.recorded, spawn.turns = record.message_count, turns_so_far(record, spawn.transcript)
    of_its_own = spawn.recorded > (record.fork_at or 0)
    spawn.resumed = of_its_own or (spawn.recorded > 0 and not spawn.request.instruction)
    if spawn.resumed and not anew:
        spawn.request = replace(spawn.request, instruction="")
    changes = taken_up(record)
    spawn.metadata = changes["metadata"]
    await store.update(spawn.request.session_id, **changes)
