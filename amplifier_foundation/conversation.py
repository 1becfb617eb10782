"""A stored session that a person talks to: new, resumed, or as a fork of another; for one turn or for many."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.ids import new_session_id
from amplifier_core.storage import Inbox
from amplifier_core.transcript import Transcript, settled_length

from .events import EventRouter
from .history import turn_starts
from .interruptions import resumed_transcript, settling_results
from .lock import session_lock
from .paths import project_of
from .recording import recorded
from .runners import final_answer, take_turn
from .spawn import prepared_bundle
from .spawning.agents import AgentSpawner
from .spawning.inheritance import child_config
from .spawning.records import bundle_identity, new_record, taken_up
from .spent import spent_of, with_spent
from .stored_history import turns_so_far
from .usage import Usage, UsageMeter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.display import DisplaySystem
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore

    from .bundles.model import Bundle, PreparedBundle
    from .recording import SessionRecorder


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn gave."""

    session_id: str
    output: str
    status: str
    turn_count: int


class Conversation:
    """One session that stays open from turn to turn; `open_conversation` makes it.

    A new one is stored with its first turn: one in which nothing is said leaves nothing behind.
    """

    def __init__(
        self,
        session: AmplifierSession,
        prepared: PreparedBundle,
        store: SessionStore,
        recorder: SessionRecorder,
        record: SessionRecord,
        *,
        is_stored: bool,
        turns: int,
        observe: Callable[[AmplifierSession], None] | None,
    ) -> None:
        self.session = session
        self.record = record
        """As it was when the conversation was opened."""
        self.is_stored = is_stored
        self.usage = Usage()
        """What it took since it was opened, the sessions below it included; as of the end of the last turn."""
        self._spent_before = spent_of(record)
        self._duration = 0.0
        self._meter = UsageMeter(session.coordinator)
        self._meter.attach()
        self._prepared = prepared
        self._store = store
        self._recorder = recorder
        self._turns_before = turns
        self._observe = observe
        self._metadata = record.metadata
        self._has_begun = False

    @property
    def turn_count(self) -> int:
        """The turns of the session, earlier ones included."""
        return self._turns_before + len(turn_starts(self.session.transcript.since(self.record.message_count)))

    @property
    def total(self) -> Usage:
        """What it took in all its turns, those before it was opened too."""
        return (self._spent_before.usage or Usage()) + self.usage

    async def say(self, prompt: str) -> Turn:
        """Take one turn; when this returns, or raises, what was said is durable and the record says how it ended.

        The record's metadata then tells what all turns took, and their seconds. Raises what the orchestrator raises,
        and the store; the session can go on all the same. A turn that was cut leaves no tool call without a result. A
        request to stop is over when the turn is.
        """
        began, status, error = time.monotonic(), "failed", None
        try:
            await self._take_up()
            output = await self._answered(prompt)
            status = self.session.state
        except BaseException as problem:
            error = f"{type(problem).__name__}: {problem}"
            status = "failed" if isinstance(problem, Exception) else "interrupted"
            raise
        finally:
            self.session.coordinator.cancellation.reset()
            self.usage = await self._meter.total()
            self._duration += time.monotonic() - began
            if self.is_stored:
                changes: dict[str, Any] = {"status": status, "turn_count": self.turn_count, "error": error}
                await self._store.update(self.session.session_id, **changes, metadata=self._told())
        return Turn(self.session.session_id, output, status, self.turn_count)

    async def is_cut(self) -> bool:
        """Return whether the last turn has no answer yet: an empty prompt goes on with it."""
        history = await self.session.history()
        return len(history) > 0 and final_answer(history) is None

    async def stored(self) -> SessionRecord | None:
        """Return the session's record as the store has it now; None before the first turn."""
        return await self._store.get(self.session.session_id) if self.is_stored else None

    def _told(self) -> dict[str, Any]:
        return with_spent(self._metadata, self.usage, self._duration)

    async def _take_up(self) -> None:
        if not self.is_stored:
            await self._store.create(self.record)
            self.is_stored = True
        if self._has_begun:
            await self._store.update(self.session.session_id, status="running", error=None)
            return
        self._has_begun = True
        changes = taken_up(self.record)
        self._metadata = changes["metadata"]
        await self._store.update(self.session.session_id, **changes, **bundle_identity(self._prepared))
        if self._observe is not None:
            self._observe(self.session)

    async def _answered(self, prompt: str) -> str:
        try:
            output = await take_turn(self.session, prompt)
        except BaseException:
            await self._settle_calls()
            raise
        finally:
            await self._recorder.flush()
        if self._recorder.failure is not None:
            raise self._recorder.failure
        return output

    async def _settle_calls(self) -> None:
        """Answer the calls that a cut left open: the next request would be refused for them."""
        context = self.session.coordinator.get("context")
        messages = await context.get_messages()
        cut = messages[settled_length(messages) :]
        for result in await settling_results(self._store, self.session.session_id, self.record.project, cut):
            await context.add_message(result)


@asynccontextmanager
async def open_conversation(
    bundle: Bundle | PreparedBundle,
    store: SessionStore,
    plugins: Plugins,
    *,
    resume: SessionRecord | None = None,
    working_dir: Path | None = None,
    name: str = "",
    approval_system: ApprovalSystem | None = None,
    display_system: DisplaySystem | None = None,
    observe: Callable[[AmplifierSession], None] | None = None,
) -> AsyncIterator[Conversation]:
    """Open a new session made from `bundle`, or the stored one `resume`, while the block runs; then end it.

    A session that is resumed is the bundle's from then on: its instruction is applied anew, and the record names it. A
    fork does not go on with what a provider keeps of its source's conversation. `name` (default: the bundle's) and
    `working_dir` are a new session's. `observe` is called with the session before its first turn. Raises
    `SessionConflict` while somebody else talks in the session.
    """
    prepared = await prepared_bundle(bundle)
    record = resume or _new(prepared, name, project_of(working_dir))
    with session_lock(record.session_id):
        if resume is not None:
            record = await store.get(resume.session_id)  # somebody may have gone on with it meanwhile
        transcript = await resumed_transcript(store, record) if resume else Transcript()
        agents = AgentSpawner(prepared, store, _router(store), plugins)
        session = await prepared.create_session(
            session_id=record.session_id,
            parent_id=record.parent_id,
            approval_system=approval_system,
            display_system=display_system,
            session_cwd=record.project,
            is_resumed=bool(record.message_count),
            config=_config(prepared, record) if resume else None,
            transcript=transcript,
            plugins=plugins,
            capabilities=agents.capabilities_of(record.session_id),
        )
        agents.take(session)
        turns = turns_so_far(record, transcript) if resume else 0
        async with recorded(session, store, record.message_count) as recorder:
            assert recorder is not None  # there is a store
            yield Conversation(
                session, prepared, store, recorder, record, is_stored=resume is not None, turns=turns, observe=observe
            )


async def converse(
    bundle: Bundle,
    prompt: str,
    store: SessionStore,
    plugins: Plugins,
    *,
    resume: SessionRecord | None = None,
    working_dir: Path | None = None,
    observe: Callable[[AmplifierSession], None] | None = None,
) -> Turn:
    """Take one turn in a new session made from `bundle`, or in the stored one `resume`; every message is durable.

    It is `open_conversation` for one turn. Raises what the orchestrator raises; the session is stored as failed then,
    and can be resumed.
    """
    async with open_conversation(
        bundle, store, plugins, resume=resume, working_dir=working_dir, observe=observe
    ) as conversation:
        return await conversation.say(prompt)


def _new(prepared: PreparedBundle, name: str, project: str) -> SessionRecord:
    name = name or prepared.bundle.name
    return new_record(prepared, new_session_id(name), name=name, project=project)


def _router(store: SessionStore) -> EventRouter:
    """Return what the session's events go to: the store's log, which background sessions follow, if it has one."""
    return EventRouter(store if isinstance(store, Inbox) else None)


def _config(prepared: PreparedBundle, record: SessionRecord) -> dict[str, object]:
    """Return the plan to resume with: the bundle's, and what the session had taken from its parent."""
    return child_config(prepared.mount_plan, record.config, providers=True, tools=False, hooks=False)
