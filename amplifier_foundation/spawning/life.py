"""Run a spawned session from its making to its end, then store and announce the outcome.

`run_spawn` never raises: the outcome, or the cancellation in `spawn.error`, goes to `settle_spawn`, and whoever awaits
the spawn raises it after that. So a child is stored and announced exactly once, whatever ended it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SpawnTimeout
from amplifier_core.events import SESSION_COMPLETED, SESSION_ERROR
from amplifier_core.hook_data import SpawnOutcome

from ..paths import project_of
from ..sessions.accounts import tree_account
from ..sessions.costs import with_spent
from ..sessions.failures import describe_failure
from ..sessions.held import with_held
from ..sessions.history import final_answer, text_of, turn_starts
from ..sessions.ledger import LEDGER
from ..sessions.once import with_marks
from ..sessions.recording import read_since, record_session
from ..sessions.untrusted import taint, taint_of
from ..sessions.usage import Usage, UsageMeter, bridge_child_cost
from ..sessions.working_dir import PROJECT_CAPABILITY
from .approvals import ChildApprovals
from .budget import BudgetGuard
from .family import TREE, Tree, end_children
from .finishes import FinishGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.hook_data import SpawnRequest
    from amplifier_core.session import AmplifierSession

    from .child import Spawn

GRACE = 5.0
"""The most seconds between the request to stop after a time limit and the cancellation."""


async def run_spawn(spawn: Spawn, timeout: float | None = None) -> SpawnOutcome:  # noqa: ASYNC109 - handed on
    """Run the child to its end and return the outcome; a cancellation of this task is kept in `spawn.error`.

    A child cancelled before, in `prepare_spawn`, does not run.
    """
    began = time.monotonic()
    output = ""
    try:
        if spawn.error is None:
            output = await _run_within(spawn, timeout)
    except BaseException as error:
        spawn.error = error
    return SpawnOutcome(
        session_id=spawn.request.session_id,
        parent_id=spawn.request.parent_id,
        status=_status_of(spawn),
        output=output,
        turn_count=spawn.turns,
        duration=time.monotonic() - began,
        error=describe_failure(spawn.error, spawn.child) if spawn.error is not None else None,
        usage=spawn.usage.to_dict() if spawn.usage is not None else {},
    )


async def _run_within(spawn: Spawn, seconds: float | None) -> str:
    """Return the answer. When the time is over, the child is asked to stop, and cut if it does not.

    Raises `SpawnTimeout`.
    """
    if seconds is None:
        return await _answer(spawn)
    if seconds <= 0:
        raise SpawnTimeout(spawn.request.session_id, seconds)
    loop, over = asyncio.get_running_loop(), asyncio.timeout(None)
    is_late = False

    def ask() -> None:
        nonlocal is_late
        is_late = True
        spawn.ask_to_stop()
        over.reschedule(loop.time() + min(GRACE, seconds / 4))

    asking = loop.call_later(seconds, ask)
    try:
        async with over:
            output = await _answer(spawn)
    except TimeoutError as error:
        late = SpawnTimeout(spawn.request.session_id, seconds, spawn.partial)
        raise (late if over.expired() else error) from None
    finally:
        asking.cancel()
    if spawn.stopped and is_late:
        raise SpawnTimeout(spawn.request.session_id, seconds, spawn.partial)
    return output


async def _answer(spawn: Spawn) -> str:
    is_over = spawn.resumed and spawn.is_conversation and not spawn.request.instruction
    finished = final_answer(spawn.transcript) if is_over else None
    if finished is not None:
        spawn.held = {}
        return finished
    builder = ChildBuilder(spawn)
    result = await spawn.runner.run(spawn.request, builder)
    if isinstance(result, str):
        return result
    if not builder.is_used:
        spawn.turns += result.turns
        spawn.usage = Usage.from_dict(result.usage)
    if result.error is not None:
        raise result.error
    return result.text


def _status_of(spawn: Spawn) -> str:
    if spawn.error is not None and not isinstance(spawn.error, Exception):
        return "cancelled"
    if spawn.stopped and not isinstance(spawn.error, SpawnTimeout):
        return "cancelled"
    if spawn.held and spawn.error is None:
        return "interrupted"
    return "completed" if spawn.error is None else "failed"


class ChildBuilder:
    """Makes the session of a spawn in this process, or tells a runner in another place what the spawn is."""

    def __init__(self, spawn: Spawn) -> None:
        self.spawn = spawn
        self.is_used = False
        """Whether the spawn has its results already: its runner made the session here, or wrote them down."""

    @asynccontextmanager
    async def __call__(self, request: SpawnRequest) -> AsyncIterator[AmplifierSession]:
        """Make the session while the block runs."""
        self.is_used = True
        try:
            async with _child_session(self.spawn, request) as session:
                yield session
        finally:
            recorder = self.spawn.recorder
            self.spawn.marks = recorder.once.marks if recorder is not None else {}
            self.spawn.taint = taint_of(self.spawn.child)


@asynccontextmanager
async def _child_session(spawn: Spawn, request: SpawnRequest) -> AsyncIterator[AmplifierSession]:
    """Make the child in this process; store its last messages and end it on leaving.

    Meanwhile a stop of its parent reaches it, its usage is counted, and its requests are held to the tree's budget.
    Raises `BudgetExceeded` after a denied request, and `AnswerUnfinished` unless the spawn accepts such answers.
    """
    session = await _create_session(spawn, request)
    token, parents = session.coordinator.cancellation, spawn.parent.coordinator.cancellation
    tree = Tree.of(session)
    async with record_session(session, spawn.store, spawn.recorded, spawn.metadata) as spawn.recorder:
        meter = UsageMeter(session.coordinator, tree.clock)
        meter.attach()
        guard = BudgetGuard(
            session,
            meter,
            spawn.metadata,
            tree.budgets,
            store=spawn.store,
            recorder=spawn.recorder,
            clock=tree.clock,
            is_top=tree_account(session.session_id) in tree.accounts,
        )
        guard.ledger.begin_turn(is_new=bool(request.instruction))
        finish = FinishGuard(session)
        parents.register_child(token)
        if spawn.stopping:
            token.request_graceful()
        # A display with levels shows the child one level below its parent.
        display: Any = session.coordinator.display_system
        nests = has_levels(display)
        try:
            if nests:
                display.push_nesting()
            for observe in (*tree.observers, *([spawn.observe] if spawn.observe is not None else ())):
                observe(session)
            yield session
        finally:
            if nests:
                display.pop_nesting()
            parents.unregister_child(token)
            spawn.stopped = token.is_cancelled
            spawn.held = spawn.recorder.held.marks if spawn.recorder is not None else {}
            await _settle_child(spawn, session, meter)
            spawn.ledger = await guard.end_turn()
            await guard.end()
        guard.raise_denial()
        problem = finish.take_problem(spawn.partial)
        if problem is not None and not spawn.accepts_unfinished:
            raise problem


def has_levels(display: Any) -> bool:
    """Return whether a display shows sessions one level below their parents."""
    return hasattr(display, "push_nesting") and hasattr(display, "pop_nesting")


async def _create_session(spawn: Spawn, request: SpawnRequest) -> AmplifierSession:
    from .agents import AgentSpawner

    outer = spawn.asked
    approvals: ApprovalSystem | None = None  # without one, everything is denied
    if outer is not None:
        tree: Tree | None = spawn.capabilities.get(TREE)
        name = str(spawn.request.metadata.get("name") or spawn.request.bundle)
        approvals = ChildApprovals.of(outer, name, tree.asking if tree is not None else asyncio.Lock())
    project = spawn.project or None
    agents = AgentSpawner(spawn.prepared, spawn.store, spawn.router, spawn.plugins, working_dir=project)
    session = spawn.child = agents.session = await spawn.prepared.create_session(
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
        said = await read_since(session, spawn.begun)
        spawn.turns += len(turn_starts(said))
        answers = (text_of(message) for message in reversed(said) if message.get("role") == "assistant")
        spawn.partial = next(filter(None, answers), "")


def tell_parent(spawn: Spawn, *, is_tainted: bool) -> None:
    """Add the child's usage to its parent's, and tell the parent that it reads the answer of a tainted session."""
    if spawn.usage is not None:
        bridge_child_cost(spawn.parent.coordinator, spawn.usage, spawn.request.session_id, adds=True)
    outer_gate = spawn.parent.coordinator.permissions
    if spawn.cause is None and outer_gate is not None and is_tainted:
        outer_gate.untrusted = outer_gate.untrusted or "it has read the answer of a session that read such text"


async def settle_spawn(spawn: Spawn, outcome: SpawnOutcome) -> None:
    """Store the outcome, emit `session:completed` or `session:error`, and tell the plugins.

    The events are emitted also when the store fails. A session that waits for an answer is only stored: it goes on.
    Raises the errors of the store.
    """
    try:
        if spawn.store is not None:
            await spawn.store.update(outcome.session_id, **record_changes(spawn, outcome))
    finally:
        try:
            if spawn.router is not None and outcome.status != "interrupted":
                name, data = outcome_event(spawn, outcome)
                project = project_of(spawn.project)
                await spawn.router.emit(name, data, outcome.session_id, project=project)
        finally:
            if spawn.plugins is not None and outcome.status != "interrupted":
                await spawn.plugins.after_spawn(outcome)


def record_changes(spawn: Spawn, outcome: SpawnOutcome) -> dict[str, Any]:
    """Return the changes of the session's record after its outcome."""
    ledger = {LEDGER: spawn.ledger} if spawn.ledger is not None else {}
    return {
        "status": outcome.status,
        "turn_count": outcome.turn_count,
        "error": outcome.error,
        "metadata": with_held(
            with_marks(
                {
                    **with_spent(spawn.metadata, spawn.usage or Usage(), outcome.duration),
                    **ledger,
                    **spawn.taint,
                },
                spawn.marks,
            ),
            spawn.held,
        ),
    }


def failure_event(session_id: str, parent_id: str, bundle: str, error: Exception) -> tuple[str, dict[str, Any]]:
    """Return the name and the data of the event for a session that could not be made."""
    return SESSION_ERROR, {
        "session_id": session_id,
        "parent_id": parent_id,
        "session_name": None,
        "bundle_name": bundle,
        "status": "failed",
        "turn_count": 0,
        "usage": {},
        "error": describe_failure(error),
        "error_type": type(error).__name__,
    }


def outcome_event(spawn: Spawn, outcome: SpawnOutcome) -> tuple[str, dict[str, Any]]:
    """Return the name and the data of the event for the end of a session."""
    data: dict[str, Any] = {
        "session_id": outcome.session_id,
        "parent_id": outcome.parent_id,
        "session_name": spawn.request.metadata.get("name"),
        "bundle_name": spawn.request.bundle,
        "status": outcome.status,
        "turn_count": outcome.turn_count,
        "usage": dict(outcome.usage),
    }
    if outcome.status == "completed":
        return SESSION_COMPLETED, {**data, "output": outcome.output, "success": True}
    kind = "Cancelled" if spawn.error is None else type(spawn.error).__name__
    return SESSION_ERROR, {**data, "error": outcome.error or "it was asked to stop", "error_type": kind}
