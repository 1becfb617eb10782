"""Prepare a spawn: ask the plugins, then store its record or load an earlier attempt.

A `Spawn` passes through `prepare_spawn`, `run_spawn` and `settle_spawn`, in this order and in one task. Before
`prepare_spawn` it is a plan and nothing knows it. After, the plugins have agreed and the record is stored (`is_kept`):
from then on the spawn must be settled, however it ends. During `run_spawn` the recorder alone appends to its history.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound
from amplifier_core.forking import ask_to_fork
from amplifier_core.frozen import slotted
from amplifier_core.hook_data import SpawnRequest
from amplifier_core.ids import new_session_id, validate_session_id

from ..documents.problems import require_text
from ..sessions.accounts import ACCOUNTS
from ..sessions.held import held_of
from ..sessions.history import final_answer, is_user_turn, text_of
from ..sessions.interruptions import resumed_transcript
from ..sessions.once import check_effects
from ..sessions.origins import ORIGIN, origin_below, origin_of_fork, origin_of_resumed
from ..sessions.recording import shield_to_completion
from ..sessions.records import INHERITED_TURNS, inherited_turns, new_record, resume_changes
from ..sessions.stored_history import turns_so_far
from ..sessions.uncounted import COUNTED, counted, resumed_record
from ..sessions.untrusted import UNTRUSTED, taint_of
from ..sessions.working_dir import PROJECT_CAPABILITY
from .family import TREE, Family, Tree
from .runners import InProcessRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.hook_data import Runner
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Transcript
    from amplifier_core.triggers import TriggerEvent

    from ..bundle.model import PreparedBundle
    from ..events import Emitter
    from ..sessions.recording import SessionRecorder
    from ..sessions.usage import Usage


@slotted
class Spawn:
    """One spawn: its plan, its state while it runs, and its results."""

    prepared: PreparedBundle
    request: SpawnRequest
    parent: AmplifierSession
    transcript: Transcript
    turns: int = 0
    """The number of its turns; the child's own are added at its end."""
    inherited: int = 0
    """The number of its turns that it has not executed: those of the history that it began with."""
    begun: int = 0
    """The number of its messages before the child began."""
    recorded: int = 0
    """The number of its messages in the store."""
    is_kept: bool = False
    """Whether the store has the record."""
    resumed: bool = False
    store: SessionStore | None = None
    router: Emitter | None = None
    plugins: Plugins | None = None
    shares: str | None = None
    """The stored session with this transcript as its beginning; None: the parent, for a fork of its history."""
    runner: Runner = field(default_factory=InProcessRunner)
    cause: TriggerEvent | None = None
    """The event that woke it; its own events continue the chain of that event."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """Further capabilities of the child, set before its modules are mounted."""
    observe: Callable[[AmplifierSession], None] | None = None
    """Called with the child after its modules are mounted, before its turn."""
    approvals: ApprovalSystem | None = None
    """Who is asked for approval; None: the parent's."""
    unattended: bool = False
    """Whether nobody waits for it: all questions for approval are denied."""
    acts: bool = False
    """Whether its bundle lets it act on text of strangers unasked."""
    is_conversation: bool = True
    """Whether an answer at the end of its history is its result."""
    accepts_unfinished: bool = False
    """Whether an answer that was cut, refused or held back counts as an answer."""
    needs_answer: bool = False
    """Whether a turn that stopped before an answer has failed: at its limit, or by a hook."""
    child: AmplifierSession | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The metadata of its record."""
    project: str = ""
    """The folder of its record and its events; '': the parent's project, or its own working folder."""
    usage: Usage | None = None
    ledger: Mapping[str, Any] | None = None
    """Its ledger at its end, and how many of its messages that counts: members of the metadata."""
    recorder: SessionRecorder | None = None
    partial: str = ""
    """The text of its last answer, also of a turn that was cut."""
    error: BaseException | None = None
    stopping: bool = False
    """Whether the child was asked to end."""
    stopped: bool = False
    """Whether it ended early, after a request to it or to a session above it."""
    held: Mapping[str, Any] = field(default_factory=dict)
    """The marks of its calls that wait for an answer: its turn goes on when it is resumed."""
    marks: Mapping[str, Any] = field(default_factory=dict)
    """The marks of its cut calls with effects once."""
    taint: Mapping[str, Any] = field(default_factory=dict)
    """The member of the metadata for a session that has read text of strangers."""

    def __post_init__(self) -> None:
        inherited = self.parent.coordinator.get_capability(PROJECT_CAPABILITY)
        self.project = self.project or str(inherited or self.request.working_dir)

    @property
    def asked(self) -> ApprovalSystem | None:
        """Who answers the child's questions; None: nobody, and all are denied."""
        return None if self.unattended else self.approvals or self.parent.coordinator.approval_system

    def ask_to_stop(self) -> None:
        """Ask the child to end when its running tools have finished, also while it is being made."""
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
    *,
    counts: bool = False,
) -> SpawnRequest:
    """Return the request for plugins and runner; `counts` adds those of its family. Raises `InvalidSessionId`."""
    family = Family.of(parent) if counts else None
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
        siblings=family.size if family is not None else 0,
        relatives=family.tree.spawned if family is not None else 0,
        limits=family.tree.limits if family is not None else {},
        metadata={"name": name},
    )


def share_stored(spawn: Spawn, record: SessionRecord, transcript: Transcript) -> None:
    """Begin a spawn with the settled history of a stored session; it has read what that session has read."""
    spawn.transcript, spawn.shares = transcript.fork(transcript.settled_length()), record.session_id
    spawn.turns = turns_so_far(record, transcript)
    if record.metadata.get(UNTRUSTED):
        spawn.metadata = {UNTRUSTED: record.metadata[UNTRUSTED], **spawn.metadata}


async def prepare_spawn(spawn: Spawn, *, resume: bool = False, anew: bool = False, again: bool = False) -> None:
    """Ask the plugins, then store the session's record, or load the record and the history of an earlier attempt.

    A resumed session goes on with its last turn; with `anew` it takes the instruction as its next turn, unless its last
    turn was cut and had the same instruction. `again` is for a request that may come twice, as after a lost answer: a
    turn that has ended, with the same instruction, is not taken a second time. A spawn with a shared history is a fork,
    and the plugins are asked for that too. Raises `SpawnRefused`, `ForkRefused`, `SessionExists`, and `TypeError`
    for an instruction that is not text. A cancellation meanwhile is raised after the record is written: see `is_kept`.
    """
    require_text("instruction", spawn.request.instruction)
    if spawn.cause is None:  # the session above wrote its instruction
        spawn.metadata = {**taint_of(spawn.parent), **spawn.metadata}
    if spawn.plugins is not None:
        await spawn.plugins.before_spawn(spawn.request)
    stored = await _find_record(spawn.store, spawn.request.session_id) if resume and spawn.store is not None else None
    origin = spawn.capabilities.get(ORIGIN) or origin_below(spawn.parent)
    if spawn.store is not None and stored is not None:
        origin = await origin_of_resumed(spawn.store, stored, origin)
        spawn.inherited = inherited_turns(stored.metadata)
        await shield_to_completion(_load(spawn, spawn.store, stored, anew=anew, again=again))
    elif spawn.store is not None or len(spawn.transcript):
        spawn.inherited = spawn.turns
        source = spawn.shares if len(spawn.transcript) else None
        if source is None and len(spawn.transcript) and spawn.transcript.is_fork_of(spawn.parent.transcript):
            source = spawn.parent.session_id
        asked = spawn.plugins if source is not None else None
        async with ask_to_fork(asked, source or "", spawn.request.session_id, len(spawn.transcript)):
            if spawn.store is not None:
                await shield_to_completion(_create(spawn, spawn.store, source))
        if source is not None:
            origin = await origin_of_fork(spawn.store, origin, source, len(spawn.transcript))
    spawn.capabilities = {**spawn.capabilities, ORIGIN: origin}
    spawn.begun = len(spawn.transcript)


async def _find_record(store: SessionStore, session_id: str) -> SessionRecord | None:
    try:
        return await store.get(session_id)
    except SessionNotFound:
        return None


async def _create(spawn: Spawn, store: SessionStore, source: str | None) -> None:
    """Store the record of a new child.

    The child shares stored messages only. When the store does not have its parent's history up to the fork yet, the
    recorder writes that history as the child's own.
    """
    begun = len(spawn.transcript)
    if source is not None and spawn.shares is None:
        parent = await _find_record(store, source)
        source = source if parent is not None and parent.message_count >= begun else None
    spawn.recorded = begun if source is not None else 0
    tree: Tree | None = spawn.capabilities.get(TREE)
    own: dict[str, Any] = {} if tree is None else {"created": tree.clock.now()}  # on a shared store, the store's time
    if begun > spawn.recorded:  # the answers in a copied history are counted where they were given
        spawn.metadata = {**spawn.metadata, COUNTED: counted(begun)}
    if spawn.inherited:
        spawn.metadata = {**spawn.metadata, INHERITED_TURNS: spawn.inherited}
    record = new_record(
        spawn.prepared,
        spawn.request.session_id,
        parent_id=spawn.request.parent_id,
        fork_of=source,
        fork_at=spawn.recorded or None,
        name=str(spawn.request.metadata.get("name", "")),
        project=spawn.project,
        config=spawn.request.config,
        event_id=spawn.cause.event_id if spawn.cause else None,
        metadata={ACCOUNTS: list(tree.accounts), **spawn.metadata} if tree is not None else spawn.metadata,
        lock=tree.lock if tree is not None else "",
        **own,
    )
    spawn.metadata = (await store.create(record)).metadata
    spawn.is_kept = True


async def _load(spawn: Spawn, store: SessionStore, record: SessionRecord, *, anew: bool, again: bool) -> None:
    """Resume from the store: load the history, with interrupted results for the calls cut by a crash.

    Raises `EffectsUncertain` when one of them must not run a second time and nobody has decided on it.
    """
    await check_effects(store, record)
    record = await resumed_record(store, record)
    spawn.transcript = await resumed_transcript(store, record)
    spawn.recorded, spawn.turns = record.message_count, turns_so_far(record, spawn.transcript)
    of_its_own = spawn.recorded > (record.fork_at or 0)
    spawn.resumed = of_its_own or (spawn.recorded > 0 and not spawn.request.instruction)
    is_cut = final_answer(spawn.transcript) is None
    # Who is about to have a next turn taken has set the record to running, and it has counted all turns before.
    is_done = again and (record.status != "running" or spawn.turns > record.turn_count)
    if spawn.resumed and anew and (is_cut or is_done):
        last = next((message for message in reversed(spawn.transcript) if is_user_turn(message)), {})
        anew = text_of(last) != spawn.request.instruction  # the same instruction again goes on with that turn
    if spawn.resumed and not anew:
        spawn.request = replace(spawn.request, instruction="")
    known = {name: value for name, value in spawn.metadata.items() if name == UNTRUSTED}
    tree: Tree | None = spawn.capabilities.get(TREE)
    lock = tree.lock if tree is not None else ""
    changes = resume_changes(replace(record, metadata={**known, **record.metadata}), lock=lock)
    spawn.metadata, spawn.held = changes["metadata"], held_of(record.metadata)
    await store.update(spawn.request.session_id, **changes)
    spawn.is_kept = True
