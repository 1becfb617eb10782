"""A child's life: made, given its turn, ended, kept and told of."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SpawnTimeout
from amplifier_core.events import SESSION_COMPLETED, SESSION_ERROR
from amplifier_core.moments import SpawnOutcome

from ..history import turn_starts
from ..recording import recorded, said_since
from ..runners import final_answer
from ..spent import with_spent
from ..usage import Usage, UsageMeter, bridge_child_cost
from .approvals import ChildApprovals
from .family import TREE, Tree, end_children

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.moments import SpawnRequest
    from amplifier_core.session import AmplifierSession

    from .child import Spawn

GRACE = 5.0
"""Seconds at most between the stop that a time limit asks for and the one that it enforces."""


async def run_spawn(spawn: Spawn, timeout: float | None = None) -> SpawnOutcome:  # noqa: ASYNC109 - handed on
    """Live the child's whole life and return how it ended; a cancellation of this task is stored in `spawn.error`.

    One that was cancelled before, while it was admitted, has no life.
    """
    began = time.monotonic()
    output = ""
    try:
        if spawn.error is None:
            output = await _within(spawn, timeout)
    except BaseException as error:
        spawn.error = error
    return SpawnOutcome(
        session_id=spawn.request.session_id,
        parent_id=spawn.request.parent_id,
        status="cancelled" if spawn.stopped and not isinstance(spawn.error, SpawnTimeout) else _status(spawn.error),
        output=output,
        turn_count=spawn.turns,
        duration=time.monotonic() - began,
        error=_cause(spawn.error),
        usage=spawn.usage.to_dict() if spawn.usage is not None else {},
    )


async def _within(spawn: Spawn, seconds: float | None) -> str:
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
        raise (SpawnTimeout(spawn.request.session_id, seconds) if over.expired() else error) from None
    finally:
        asking.cancel()
    if spawn.stopped and is_late:
        raise SpawnTimeout(spawn.request.session_id, seconds)
    return output


async def _answer(spawn: Spawn) -> str:
    finished = final_answer(spawn.transcript) if spawn.resumed and not spawn.request.instruction else None
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


@asynccontextmanager
async def _child_session(spawn: Spawn, request: SpawnRequest) -> AsyncIterator[AmplifierSession]:
    """Make the child in this process; store its last messages and end it on leaving.

    Meanwhile a stop of its parent reaches it, and what it takes is counted.
    """
    session = await _made(spawn, request)
    token, parents = session.coordinator.cancellation, spawn.parent.coordinator.cancellation
    async with recorded(session, spawn.store, spawn.recorded):
        meter = UsageMeter(session.coordinator)
        meter.attach()
        parents.register_child(token)
        if spawn.stopping:
            token.request_graceful()
        try:
            for observe in _observers(spawn):
                observe(session)
            yield session
        finally:
            parents.unregister_child(token)
            spawn.stopped = token.is_cancelled
            await _take_stock(spawn, session, meter)


async def _made(spawn: Spawn, request: SpawnRequest) -> AmplifierSession:
    from .agents import AgentSpawner

    agents = AgentSpawner(spawn.prepared, spawn.store, spawn.router, spawn.plugins)
    session = spawn.child = agents.session = await spawn.prepared.create_session(
        session_id=request.session_id,
        parent_id=request.parent_id,
        approval_system=_approvals(spawn),
        display_system=spawn.parent.coordinator.display_system,
        session_cwd=request.working_dir or None,
        is_resumed=spawn.resumed,
        config=dict(request.config),
        transcript=spawn.transcript,
        plugins=spawn.plugins,
        capabilities={
            "session.depth": request.depth,
            **agents.capabilities_of(request.session_id, spawn.cause),
            **spawn.capabilities,
        },
        parent=spawn.parent,
    )
    return session


def _approvals(spawn: Spawn) -> ApprovalSystem | None:
    """Return who is asked for the child's permissions: whom the parent asks, or nobody, who denies."""
    outer = spawn.parent.coordinator.approval_system
    if outer is None or spawn.unattended:
        return None
    tree: Tree | None = spawn.capabilities.get(TREE)
    turn = tree.asking if tree is not None else asyncio.Lock()
    return ChildApprovals.of(outer, str(spawn.request.metadata.get("name") or spawn.request.bundle), turn)


def _observers(spawn: Spawn) -> list[Callable[[AmplifierSession], None]]:
    tree: Tree | None = spawn.capabilities.get(TREE)
    return [*(tree.observers if tree is not None else ()), *([spawn.observe] if spawn.observe is not None else ())]


async def _take_stock(spawn: Spawn, session: AmplifierSession, meter: UsageMeter) -> None:
    """End those of the child's own children that still run; count its turns and what it took, and tell its parent."""
    try:
        await end_children(session)
    finally:
        spawn.usage = await meter.total()
        bridge_child_cost(spawn.parent.coordinator, spawn.usage, session.session_id, adds=True)
        spawn.turns += len(turn_starts(await said_since(session, spawn.begun)))


async def settle_spawn(spawn: Spawn, outcome: SpawnOutcome) -> None:
    """Store the outcome, emit `session:completed` or `session:error`, and tell the plugins.

    What cannot be stored is told all the same. Raises what the store raises.
    """
    try:
        if spawn.store is not None:
            await spawn.store.update(outcome.session_id, **record_changes(spawn, outcome))
    finally:
        try:
            if spawn.router is not None:
                name, data = outcome_event(spawn, outcome)
                await spawn.router.emit(name, data, outcome.session_id)
        finally:
            if spawn.plugins is not None:
                await spawn.plugins.after_spawn(outcome)


def record_changes(spawn: Spawn, outcome: SpawnOutcome) -> dict[str, Any]:
    """Return the fields of the session's record that its outcome changes."""
    return {
        "status": outcome.status,
        "turn_count": outcome.turn_count,
        "error": outcome.error,
        "metadata": with_spent(spawn.metadata, spawn.usage or Usage(), outcome.duration),
    }


def failure_event(session_id: str, parent_id: str, bundle: str, error: Exception) -> tuple[str, dict[str, Any]]:
    """Return the name and data of the event that tells of a session that could not be made."""
    return SESSION_ERROR, {
        "session_id": session_id,
        "parent_id": parent_id,
        "session_name": None,
        "bundle_name": bundle,
        "status": "failed",
        "turn_count": 0,
        "usage": {},
        "error": _cause(error),
        "error_type": type(error).__name__,
    }


def outcome_event(spawn: Spawn, outcome: SpawnOutcome) -> tuple[str, dict[str, Any]]:
    """Return the name and data of the event that tells how a session ended."""
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
