"""Run a spawned session from its making to its end, then store and announce the outcome.

`run_spawn` never raises: the outcome, or the cancellation in `spawn.error`, goes to `settle_spawn`, and whoever awaits
the spawn raises it after that. So a child is stored and announced exactly once, whatever ended it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import as_failure
from amplifier_core.eager import Waiting, start
from amplifier_core.errors import PluginError, SpawnTimeout
from amplifier_core.events import SESSION_COMPLETED, SESSION_ERROR
from amplifier_core.hook_data import RunResult, SpawnOutcome
from amplifier_core.raised import blame, describe_at

from ..paths import project_of
from ..sessions.costs import with_spent
from ..sessions.failures import describe_failure
from ..sessions.held import HELD
from ..sessions.history import final_answer
from ..sessions.once import ONCE
from ..sessions.records import with_members
from ..sessions.usage import Usage
from .child_session import ChildBuilder

if TYPE_CHECKING:
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
        spawn.error = error if spawn.stopped or spawn.stopping else as_failure(error)
    outcome = SpawnOutcome(
        session_id=spawn.request.session_id,
        parent_id=spawn.request.parent_id,
        status=_status_of(spawn),
        output=output,
        turn_count=spawn.turns - spawn.inherited,
        duration=time.monotonic() - began,
        error=describe_failure(spawn.error, spawn.child) if spawn.error is not None else None,
        usage=spawn.usage.to_dict() if spawn.usage is not None else {},
    )
    if spawn.child is not None:
        spawn.child.release()
    return outcome


async def _run_within(spawn: Spawn, seconds: float | None) -> str:
    """Return the answer. When the time is over, the child is asked to stop, and cut if it does not.

    Raises `SpawnTimeout`.
    """
    if seconds is None:
        return await _answer(spawn)
    if seconds <= 0:
        raise SpawnTimeout(spawn.request.session_id, seconds)
    deadline = asyncio.get_running_loop().time() + seconds
    answer = start(_answer(spawn))  # no timer for a child that never waits
    return await _wait_until(deadline, spawn, answer, seconds) if isinstance(answer, Waiting) else answer


async def _wait_until(deadline: float, spawn: Spawn, answer: Waiting[str], seconds: float) -> str:
    """Return the answer of a running child, or end it after `deadline`, in the time of the loop."""
    loop, over = asyncio.get_running_loop(), asyncio.timeout(None)
    is_late = False

    def ask() -> None:
        nonlocal is_late
        is_late = True
        spawn.ask_to_stop()
        over.reschedule(loop.time() + min(GRACE, seconds / 4))

    asking = loop.call_at(deadline, ask)
    try:
        async with over:
            output = await answer
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
    result: Any = await spawn.runner.run(spawn.request, builder)
    runner = type(spawn.runner)
    name = f"runner {runner.__module__}.{runner.__qualname__}"
    if isinstance(result, str):
        return result
    if isinstance(result, RunResult):
        if not builder.is_used:
            spawn.turns += result.turns
            spawn.usage = Usage.from_dict(result.usage)
        if isinstance(result.error, Exception | asyncio.CancelledError):
            raise result.error
        if result.error is not None:
            raise PluginError(f"{name} returned {describe_at(result.error, '')}")
        if isinstance(result.text, str):
            return result.text
    given = getattr(result, "text", result)
    raise blame(TypeError(f"{name} must return RunResult with text, or text, not {given!r}"), spawn.runner.run)


def _status_of(spawn: Spawn) -> str:
    if spawn.error is not None and not isinstance(spawn.error, Exception):
        return "cancelled"
    if spawn.stopped and not isinstance(spawn.error, SpawnTimeout):
        return "cancelled"
    if spawn.held and spawn.error is None:
        return "interrupted"
    return "completed" if spawn.error is None else "failed"


async def settle_spawn(spawn: Spawn, outcome: SpawnOutcome) -> None:
    """Store the outcome, emit `session:completed` or `session:error`, and tell the plugins.

    The events are emitted also when the store fails. A session that waits for an answer is only stored: it goes on.
    The record of one that another writer has is left. Raises the errors of the store.
    """
    try:
        is_lost = spawn.recorder is not None and spawn.recorder.metadata.is_lost
        if spawn.store is not None and not is_lost:
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
    return {
        "status": outcome.status,
        "turn_count": spawn.turns,
        "error": outcome.error,
        "metadata": with_members(
            {
                **with_spent(spawn.metadata, spawn.usage or Usage(), outcome.duration),
                **(spawn.ledger or {}),
                **spawn.taint,
            },
            {ONCE: spawn.marks, HELD: spawn.held},
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
        "duration": outcome.duration,
    }
    if outcome.status == "completed":
        return SESSION_COMPLETED, {**data, "output": outcome.output, "success": True}
    kind = "Cancelled" if spawn.error is None else type(spawn.error).__name__
    return SESSION_ERROR, {**data, "error": outcome.error or "it was asked to stop", "error_type": kind}
