"""Take the steps of a workflow within the session of its run, until they are done, or wait for a person."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import Clock, SystemClock
from amplifier_core.frozen import frozen

from ..bundle.untrusted_text import Fences
from ..sessions.runs import RUN
from ..sessions.untrusted import UNTRUSTED
from ..spawning.own_loops import SessionLoops
from .asking import watch_for_cancel
from .description import KEY, describe_workflow, without_secrets
from .engine import Engine
from .failures import first_of
from .journal import Journal
from .turns import AgentTurns

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore, SessionRecord
    from amplifier_core.transcript import Message

    from ..spawning.agents import AgentSpawner
    from .engine import Approvals, Tell
    from .graph import Graph
    from .run_events import RunEvents

FLOW = RUN
"""The member of the metadata of a run's record: the name of its workflow, its input, and the digest of its steps."""


@frozen
class Taken:
    """The outputs of tasks by id, and whether some wait for a person."""

    outputs: Mapping[str, Any]
    waits: bool


async def take_steps(
    graph: Graph,
    store: DurableStore,
    record: SessionRecord,
    session: AmplifierSession,
    agents: AgentSpawner,
    approvals: Approvals,
    events: RunEvents,
    *,
    is_foreign: bool = False,
    accepts_unfinished: bool = False,
    clock: Clock | None = None,
    tell: Tell | None = None,
) -> Taken:
    """Take what is left of a run. `is_foreign` says that strangers wrote its input.

    With `accepts_unfinished`, an unfinished answer of a task counts as its answer.

    Raises `FlowError` of the first task that fails for good, and when a person cancels the run.
    """
    given = record.metadata[FLOW]["input"]
    clock = clock or SystemClock()
    is_foreign = is_foreign or bool(record.metadata.get(UNTRUSTED))
    fences = (lambda: Fences(record.session_id)) if is_foreign else None
    journal = await Journal.open(store, record, lambda: first_message(graph, given), events)
    try:
        with SessionLoops() as loops:
            turns = AgentTurns(agents, store, session, loops, accepts_unfinished=accepts_unfinished)
            engine = Engine(graph, journal, turns, approvals, given, clock, tell, fences)
            return await _run(engine, watch_for_cancel(store, record.project, record.session_id, clock))
    except BaseExceptionGroup as errors:
        error = first_of(errors)
        raise error from error.__cause__


async def _run(engine: Engine, watch: Coroutine[Any, Any, None]) -> Taken:
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch)
        outputs, waits = await engine.run()
        watching.cancel()
    return Taken(outputs, waits)


def first_message(graph: Graph, given: Mapping[str, Any]) -> Message:
    """Return the message with which the session of a run begins."""
    told = json.dumps(dict(given), ensure_ascii=False, default=str)
    description = without_secrets(describe_workflow(graph.workflow))
    return {"role": "user", "content": f"Run {graph.workflow.name} with {told}", "metadata": {KEY: description}}
