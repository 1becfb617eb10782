"""Make the session of a spawn in this process: watched while it lives, settled and ended with its turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..sessions.accounts import tree_account
from ..sessions.history import is_user_turn, text_of
from ..sessions.recording import record_session
from ..sessions.untrusted import taint, taint_of
from ..sessions.usage import UsageMeter, bridge_child_cost
from ..sessions.working_dir import PROJECT_CAPABILITY
from .agents import AgentSpawner
from .approvals import ChildApprovals
from .budget import BUDGET, BudgetGuard
from .family import TREE, Tree, end_children
from .finishes import FinishGuard

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.hook_data import SpawnRequest
    from amplifier_core.session import AmplifierSession

    from ..sessions.recording import SessionRecorder
    from .child import Spawn


class ChildBuilder:
    """Makes the session of a spawn in this process, or tells a runner in another place what the spawn is."""

    def __init__(self, spawn: Spawn) -> None:
        self.spawn = spawn
        self.is_used = False
        """Whether the spawn has its results already: its runner made the session here, or wrote them down."""

    def __call__(self, request: SpawnRequest) -> AbstractAsyncContextManager[AmplifierSession]:
        """Make the session while the block runs."""
        self.is_used = True
        return _ChildSession(self.spawn, request)


class _ChildSession:  # a class: the generators of three nested context managers would cost a tenth of a spawn
    """Makes the child in this process on entering; stores its last messages and ends it on leaving.

    Meanwhile a stop of its parent reaches it, its usage is counted, and its requests are held to the tree's budget.
    Raises `BudgetExceeded` after a denied request, and `AnswerUnfinished` unless the spawn accepts such answers.
    """

    __slots__ = ("_finish", "_guard", "_meter", "_nests", "_recording", "_request", "_session", "_spawn", "_tree")

    def __init__(self, spawn: Spawn, request: SpawnRequest) -> None:
        self._spawn = spawn
        self._request = request
        self._recording: AbstractAsyncContextManager[SessionRecorder | None] | None = None
        self._guard: BudgetGuard | None = None  # without a budget and without a store nobody reads a ledger
        self._nests = False

    async def __aenter__(self) -> AmplifierSession:
        try:
            session = self._session = await _create_session(self._spawn, self._request)
            if self._spawn.store is not None:
                self._recording = record_session(session, self._spawn.store, self._spawn.recorded, self._spawn.metadata)
                self._spawn.recorder = await self._recording.__aenter__()
            try:
                self._watch(session)
                await self._begin(session)
            except BaseException as error:
                await self._end(error)
                raise
        except BaseException:
            self._note_marks()
            raise
        return session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            try:
                await self._settle()
                if error is None:
                    self._raise_problem()
            except BaseException as later:
                await self._end(later)
                raise
            await self._end(error)
        finally:
            self._note_marks()

    def _watch(self, session: AmplifierSession) -> None:
        """Count the usage of the child, and hold it to its budgets."""
        spawn = self._spawn
        tree = self._tree = Tree.of(session)
        meter = self._meter = UsageMeter(session.coordinator, tree.clock)
        meter.attach()
        if spawn.store is not None or tree.budgets or session.config["session"].get(BUDGET):
            self._guard = BudgetGuard(
                session,
                meter,
                spawn.metadata,
                tree.budgets,
                store=spawn.store,
                recorder=spawn.recorder,
                clock=tree.clock,
                is_top=tree_account(session.session_id) in tree.accounts,
            )
            self._guard.ledger.begin_turn(is_new=bool(self._request.instruction))
        self._finish = FinishGuard(session)

    async def _begin(self, session: AmplifierSession) -> None:
        """Put the child under the cancellation and the display of its parent, and show it to the observers."""
        spawn = self._spawn
        token = session.coordinator.cancellation
        spawn.parent.coordinator.cancellation.register_child(token)
        if spawn.stopping:
            token.request_graceful()
        # A display with levels shows the child one level below its parent.
        display: Any = session.coordinator.display_system
        nests = display is not None and has_levels(display)
        try:
            if nests:
                display.push_nesting()
                self._nests = True
            for observe in self._tree.observers:
                observe(session)
            if spawn.observe is not None:
                spawn.observe(session)
        except BaseException:
            await self._settle()
            raise

    async def _settle(self) -> None:
        spawn, session = self._spawn, self._session
        if self._nests:
            display: Any = session.coordinator.display_system
            display.pop_nesting()
        token = session.coordinator.cancellation
        spawn.parent.coordinator.cancellation.unregister_child(token)
        recorder = spawn.recorder
        is_unstored = recorder is not None and recorder.failure is not None  # which stops it, too
        spawn.stopped = token.is_cancelled and not is_unstored
        spawn.held = recorder.held.marks if recorder is not None else {}
        await _settle_child(spawn, session, self._meter)
        if self._guard is not None:
            spawn.ledger = await self._guard.end_turn()
            await self._guard.end()

    def _raise_problem(self) -> None:
        if self._guard is not None:
            self._guard.raise_denial()
        spawn = self._spawn
        problem = self._finish.take_problem(spawn.partial, needs_answer=spawn.needs_answer and not spawn.held)
        if problem is not None and not spawn.accepts_unfinished:
            raise problem

    async def _end(self, error: BaseException | None) -> None:
        """Store the last messages, and end the session in any case; raise a failure of the store if nothing else is."""
        if self._recording is None:
            await self._session.cleanup()
        elif error is None:
            await self._recording.__aexit__(None, None, None)
        else:
            await self._recording.__aexit__(type(error), error, error.__traceback__)

    def _note_marks(self) -> None:
        recorder = self._spawn.recorder
        self._spawn.marks = recorder.once.marks if recorder is not None else {}
        self._spawn.taint = taint_of(self._spawn.child)


def has_levels(display: Any) -> bool:
    """Return whether a display shows sessions one level below their parents."""
    return hasattr(display, "push_nesting") and hasattr(display, "pop_nesting")


async def _create_session(spawn: Spawn, request: SpawnRequest) -> AmplifierSession:
    outer = spawn.asked
    approvals: ApprovalSystem | None = None  # without one, everything is denied
    if outer is not None:
        tree: Tree | None = spawn.capabilities.get(TREE)
        name = str(spawn.request.metadata.get("name") or spawn.request.bundle)
        approvals = ChildApprovals.of(outer, name, tree.asking if tree is not None else asyncio.Lock())
    project = spawn.project or None
    agents = AgentSpawner(spawn.prepared, spawn.store, spawn.router, spawn.plugins, working_dir=project)
    session = spawn.child = await spawn.prepared.create_session(
        session_id=request.session_id,
        parent_id=request.parent_id,
        approval_system=approvals,
        display_system=spawn.parent.coordinator.display_system,
        session_cwd=request.working_dir or None,
        is_resumed=spawn.resumed,
        config=dict(request.config),
        transcript=spawn.transcript,
        plugins=spawn.plugins,
        capabilities={
            "session.depth": request.depth,
            **({PROJECT_CAPABILITY: spawn.project} if spawn.project != request.working_dir else {}),
            **agents.capabilities_of(request.session_id, spawn.cause),
            **spawn.capabilities,
        },
        parent=spawn.parent,
    )
    agents.take(session)
    outer_gate = spawn.parent.coordinator.permissions if spawn.cause is None else None
    taint(session, spawn.metadata, acts=spawn.acts or (outer_gate is not None and outer_gate.acts))
    return session


async def _settle_child(spawn: Spawn, session: AmplifierSession, meter: UsageMeter) -> None:
    """End the child's own children that still run; count its turns and its usage, and tell its parent."""
    try:
        await end_children(session)
    finally:
        spawn.usage = await meter.total()
        tell_parent(spawn, is_tainted=bool(taint_of(session)))
        for message in (await session.history()).since(spawn.begun):
            if message.get("role") == "assistant":
                spawn.partial = text_of(message) or spawn.partial
            elif is_user_turn(message):
                spawn.turns += 1


def tell_parent(spawn: Spawn, *, is_tainted: bool) -> None:
    """Add the child's usage to its parent's, and tell the parent that it reads the answer of a tainted session."""
    if spawn.usage is not None:
        bridge_child_cost(spawn.parent.coordinator, spawn.usage, spawn.request.session_id, adds=True)
    outer_gate = spawn.parent.coordinator.permissions
    if spawn.cause is None and outer_gate is not None and is_tainted:
        outer_gate.untrusted = outer_gate.untrusted or "it has read the answer of a session that read such text"
