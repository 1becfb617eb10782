"""Converse with a person in a stored session: a new one, a resumed one or a fork, for one turn or for many."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict
from amplifier_core.frozen import frozen
from amplifier_core.ids import new_session_id
from amplifier_core.storage import Inbox
from amplifier_core.transcript import Transcript, settled_length

from ..bundle.permissions import bundle_layer
from ..documents.problems import require_text
from ..events import EventRouter
from ..paths import project_of
from ..sessions.accounts import ACCOUNTS, tree_account
from ..sessions.costs import spent_of, with_spent
from ..sessions.failures import describe_failure
from ..sessions.held import HELD
from ..sessions.history import final_answer
from ..sessions.interruptions import resumed_transcript, settling_results
from ..sessions.lock import running_owner, session_lock
from ..sessions.once import ONCE
from ..sessions.origins import origin_capability
from ..sessions.presence import KEY as PROCESS
from ..sessions.presence import refuse_occupied, this_process
from ..sessions.recording import GRACE, begin_write, finish_within, record_session, shield_to_completion
from ..sessions.records import bundle_identity, new_record, resume_changes, with_members
from ..sessions.session_storage import as_session_store
from ..sessions.stored_history import turns_so_far
from ..sessions.uncounted import resumed_record
from ..sessions.untrusted import taint, taint_of
from ..sessions.usage import Usage, UsageMeter
from ..spawn import prepared_bundle
from .agents import AgentSpawner
from .budget import BudgetGuard
from .family import TREE, Tree
from .finishes import FinishGuard
from .own_terms import OwnTerms, own_terms
from .runners import take_turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.display import DisplaySystem
    from amplifier_core.permissions import Policy
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStorage, SessionStore

    from ..bundle.model import Bundle, PreparedBundle
    from ..sessions.recording import SessionRecorder


@frozen
class Turn:
    """The outcome of one turn: `status` is `completed`, `cancelled`, or `incomplete` for an unfinished answer.

    `error` says what an unfinished answer lacks, or what stopped the turn before one; `output` is its text so far. The
    `stop_reason` of an incomplete turn is its model's `finish_reason`, such as `length`, or `max_iterations`, or
    `denied` by a hook, or unknown.
    """

    session_id: str
    output: str
    status: str
    turn_count: int
    error: str | None = None
    stop_reason: str | None = None


class Conversation:
    """One session, open from turn to turn; `open_conversation` makes it.

    A new session is stored with its first turn; without a turn it leaves nothing behind.
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
        ends: list[asyncio.Task[None]],
    ) -> None:
        self.session = session
        self.record = record
        """The record at the opening of the conversation."""
        self.is_stored = is_stored
        self.usage = Usage()
        """The usage since the opening, with the sessions below it, up to the end of the last turn."""
        self._spent_before = spent_of(record)
        self._duration = 0.0
        tree = Tree.of(session)
        self._meter = UsageMeter(session.coordinator, tree.clock)
        self._meter.attach()
        self._finish = FinishGuard(session)
        self._guard = BudgetGuard(
            session,
            self._meter,
            record.metadata,
            tree.budgets,
            store=store,
            recorder=recorder,
            clock=tree.clock,
            is_top=tree_account(record.session_id) in tree.accounts,
        )
        self._prepared = prepared
        self._store = store
        self._recorder = recorder
        self._turns_before = turns
        self._observe = observe
        self._metadata = {**record.metadata, ACCOUNTS: list(tree.accounts)}
        taint(session, record.metadata)
        self._has_begun = False
        self._storing = asyncio.Lock()
        self._ends = ends

    @property
    def turn_count(self) -> int:
        """The turns of the session, earlier ones included."""
        return self._turns_before + self._recorder.turns

    @property
    def total(self) -> Usage:
        """The usage of all its turns, also of those before the opening."""
        return (self._spent_before.usage or Usage()) + self.usage

    async def say(self, prompt: str, attached: Sequence[Mapping[str, Any]] = ()) -> Turn:
        """Take one turn. When this returns or raises, its messages are durable and the record has the outcome.

        `attached` are content blocks beside the prompt, such as images. The record's metadata has the usage and the
        seconds of all turns then. Raises the errors of the orchestrator and the store, and `BudgetExceeded`; the
        session can take further turns all the same. Raises `TypeError` for a prompt that is not text. A cut turn leaves
        no tool call without a result. A request to stop ends with the turn. A cancelled turn waits some seconds for a
        slow store, whose writes then go on alone. An answer that its model did not finish, or that a hook or a limit
        stopped, is stored as a failure, and returned.
        """
        require_text("prompt", prompt)
        began, status, outcome = time.monotonic(), "failed", "incomplete"
        error = stop_reason = None
        begin = begin_write(self._store_begin())
        try:
            await shield_to_completion(begin, GRACE)
            if not self._has_begun and self._observe is not None:
                self._observe(self.session)
            self._has_begun = True
            self._guard.ledger.begin_turn(is_new=bool(prompt))
            if attached:
                await self._attach(prompt, attached)
            output = await self._take_turn("" if attached else prompt)
            problem = self._finish.take_problem(output, needs_answer=not self._recorder.held.marks)
            if problem is None:
                status = outcome = self.session.state
            else:
                error, output = str(problem), problem.partial
                stop_reason = self._finish.stop_reason or None
        except BaseException as failure:
            self._finish.take_problem("")  # this turn's, and not the next one's
            error = describe_failure(failure, self.session)
            status = "failed" if isinstance(failure, Exception) else "interrupted"
            raise
        finally:
            self.session.coordinator.cancellation.reset()
            self._duration += time.monotonic() - began
            end = begin_write(self._store_end(begin, status, error))
            self._ends.append(end)  # it comes after a late beginning
            if status == "interrupted":
                await finish_within(end, GRACE if begin.done() else 0)  # its beginning is late already
            else:
                await shield_to_completion(end, GRACE)
        return Turn(self.session.session_id, output, outcome, self.turn_count, error, stop_reason)

    async def keep(self, name: str, value: Any) -> None:
        """Keep a value in the metadata of the record, durably; an empty one removes its member.

        Raises `SessionConflict` while another process runs the session, or once somebody else has written it.
        """
        if self.is_stored:
            await self._recorder.metadata.require_place()
        self._metadata = with_members(self._metadata, {name: value})
        if self.is_stored:
            await self._recorder.metadata.write(**{name: value})

    async def is_cut(self) -> bool:
        """Return whether the last turn has no answer yet; an empty prompt resumes such a turn."""
        history = await self.session.history()
        return len(history) > 0 and final_answer(history) is None

    async def read_record(self) -> SessionRecord | None:
        """Return the session's record in the store; None before the first turn."""
        return await self._store.get(self.session.session_id) if self.is_stored else None

    async def _store_begin(self) -> None:
        """Store a new session, or mark a stored one as running: one transaction either way."""
        async with self._storing:
            changes: dict[str, Any] = {"status": "running", "error": None}
            if not self._has_begun:
                known = replace(self.record, metadata=self._metadata)
                changes = resume_changes(known, lock=known.session_id) | bundle_identity(self._prepared)
                self._metadata = changes["metadata"]
            if self.is_stored:
                found = await self._recorder.metadata.require_place()
                if self._has_begun and found.metadata.get(PROCESS) != this_process():  # somebody was here meanwhile
                    changes = resume_changes(found, lock=found.session_id)
                await self._store.update(self.session.session_id, **changes)
            else:
                await self._store.create(replace(self.record, **changes))
                self.is_stored = True
            if not self._has_begun:
                self._recorder.metadata.values = {**self._metadata}

    async def _store_end(self, begin: asyncio.Task[None], status: str, error: str | None) -> None:
        """Store the end of a turn, after its beginning; nothing of a turn that was refused."""
        self.usage = await self._meter.total()
        ledger = await self._guard.end_turn()
        changes: dict[str, Any] = {"status": status, "turn_count": self.turn_count, "error": error}
        spent = {**with_spent(self._metadata, self.usage, self._duration), **ledger}
        spent |= taint_of(self.session)
        marks = {ONCE: self._recorder.once.marks, HELD: self._recorder.held.marks}
        await asyncio.wait({begin})  # it may be late, and would leave the session running
        if not begin.cancelled() and isinstance(begin.exception(), SessionConflict):
            return  # the record is somebody else's
        async with self._storing:
            if self.is_stored and not self._recorder.metadata.is_lost:
                metadata = with_members(spent, marks)
                await self._store.update(self.session.session_id, **changes, metadata=metadata)

    async def _attach(self, prompt: str, attached: Sequence[Mapping[str, Any]]) -> None:
        """Add a prompt with further blocks as a message: the turn begins there. Raises `ValueError`."""
        coordinator = self.session.coordinator
        if not getattr(coordinator.get("orchestrator"), "continues_history", False):
            raise ValueError("the orchestrator of this session takes text alone")
        blocks = [dict(each) for each in attached]
        content = [*blocks, {"type": "text", "text": prompt}] if prompt else blocks
        await coordinator.get("context").add_message({"role": "user", "content": content})

    async def _take_turn(self, prompt: str) -> str:
        try:
            output = await take_turn(self.session, prompt)
        except BaseException:
            await self._settle_calls()
            raise
        finally:
            await self._recorder.flush()
        if self._recorder.failure is not None:
            raise self._recorder.failure
        self._guard.raise_denial()
        return output

    async def _settle_calls(self) -> None:
        """Answer the calls left open by a cut: a provider would refuse the next request for them."""
        context = self.session.coordinator.get("context")
        messages = await context.get_messages()
        start = settled_length(messages)
        for result in await settling_results(self._store, self.record, messages[start:], start):
            await context.add_message(result)


def _tighten(permissions: Policy | None, prepared: PreparedBundle, terms: OwnTerms) -> Policy | None:
    """Return the permissions of a session on `terms`: an agent's session also has those of the bundle it is from."""
    if permissions is None or terms.prepared is prepared:
        return permissions
    return permissions.below(*filter(None, [bundle_layer(prepared.bundle)]))


@asynccontextmanager
async def open_conversation(
    bundle: Bundle | PreparedBundle,
    store: SessionStore | SessionStorage,
    plugins: Plugins,
    *,
    resume: SessionRecord | None = None,
    working_dir: Path | None = None,
    name: str = "",
    approval_system: ApprovalSystem | None = None,
    display_system: DisplaySystem | None = None,
    observe: Callable[[AmplifierSession], None] | None = None,
    attach: Callable[[AmplifierSession], None] | None = None,
    permissions: Policy | None = None,
    capabilities: Mapping[str, Any] | None = None,
) -> AsyncIterator[Conversation]:
    """Open a new session made from `bundle`, or the stored one `resume`, while the block runs; then end it.

    A resumed session is the bundle's from then on: the bundle's instruction applies, and the record names the bundle. A
    session of one of the bundle's agents resumes on its own terms (`own_terms`). `name` (default: the bundle's) and
    `working_dir` are for a new session. `observe` is called with the session before its first turn, `attach` with the
    session and all sessions below it as soon as their modules are mounted. `permissions` hold for all of them, and
    `capabilities` are further ones of the session. The program that loaded the bundle decides whether it is trusted.
    Raises `SessionConflict` while another conversation or process has it, or an approval is waited for in it.
    """
    prepared, store = await prepared_bundle(bundle), as_session_store(store)
    name = name or prepared.bundle.name
    record = resume or new_record(prepared, new_session_id(name), name=name, project=project_of(working_dir))
    with _lock_until_stored(record.session_id) as ends:
        if resume is not None:
            record = await resumed_record(store, await store.get(resume.session_id))  # it may have gone on
            refuse_occupied(record)
        transcript = await resumed_transcript(store, record) if resume else Transcript()
        attached = (attach,) if attach is not None else ()
        tree = Tree.below(record.session_id, prepared.bundle, record.created, record.metadata, observers=attached)
        terms = await own_terms(prepared, store, record) if resume else OwnTerms(prepared)
        permissions, prepared = _tighten(permissions, prepared, terms), terms.prepared
        log = store if isinstance(store, Inbox) else None  # background sessions follow the log of the store
        agents = AgentSpawner(prepared, store, EventRouter(log), plugins, working_dir=record.project)
        own = {TREE: tree, **await origin_capability(store, resume), **agents.capabilities_of(record.session_id)}
        session = await prepared.create_session(
            session_id=record.session_id,
            parent_id=record.parent_id,
            approval_system=approval_system,
            display_system=display_system,
            session_cwd=record.project,
            is_resumed=bool(record.message_count),
            config=terms.config if terms.config is not None else _plan_of(prepared, record.project),
            transcript=transcript,
            plugins=plugins,
            permissions=permissions,
            capabilities={**own, **terms.capabilities, **(capabilities or {})},
        )
        agents.take(session)
        async with record_session(session, store, record.message_count, record.metadata) as recorder:
            assert recorder is not None  # there is a store
            for each in attached:
                each(session)
            turns, is_stored = turns_so_far(record, transcript) if resume else 0, resume is not None
            parts = (session, prepared, store, recorder, record)
            yield Conversation(*parts, is_stored=is_stored, turns=turns, observe=observe, ends=ends)


@contextmanager
def _lock_until_stored(session_id: str) -> Iterator[list[asyncio.Task[None]]]:
    """Hold a session's lock while the block runs, and then until the last task in the yielded list has ended.

    A write of the record that goes on alone would else change a turn of somebody else.
    """
    with ExitStack() as lock:
        lock.enter_context(session_lock(session_id))
        ends: list[asyncio.Task[None]] = []
        try:
            yield ends
        finally:
            if ends and not ends[-1].done():
                kept = lock.pop_all()
                ends[-1].add_done_callback(lambda _: kept.close())


def _plan_of(prepared: PreparedBundle, project: str) -> dict[str, Any]:
    """Return the mount plan of a conversation: its orchestrator gets no background sessions that `up` runs already."""
    if prepared.bundle.background_sessions:
        owner = running_owner(project)
        if owner is not None and prepared.bundle.name in (owner.get("bundles") or ()):
            return deepcopy(prepared.mount_plan)
    return prepared.hosting_plan()


async def converse(
    bundle: Bundle,
    prompt: str,
    store: SessionStore | SessionStorage,
    plugins: Plugins,
    *,
    resume: SessionRecord | None = None,
    working_dir: Path | None = None,
    observe: Callable[[AmplifierSession], None] | None = None,
) -> Turn:
    """Take one turn in a new session made from `bundle`, or in the stored one `resume`; every message is durable.

    A storage with `save`, `load` and `exists` is enough for a `store`; of a session in it, `SessionRecord(its id)` is
    enough to `resume` it. It is `open_conversation` for one turn. Raises the errors of the orchestrator; the session is
    stored as failed then, and can be resumed. Raises `TypeError` for a prompt that is not text, an id in place of a
    record, or a store that is none.
    """
    if isinstance(resume, str):
        raise TypeError(f"resume: give the record of a session, not its id: SessionRecord({resume!r})")
    async with open_conversation(
        bundle, store, plugins, resume=resume, working_dir=working_dir, observe=observe
    ) as conversation:
        return await conversation.say(prompt)
