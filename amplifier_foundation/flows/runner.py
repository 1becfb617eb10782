"""Run the sessions of background sessions with a `workflow:`: the session of an event is a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from amplifier_core.hook_data import RunResult, SessionBuilder, SpawnRequest
    from amplifier_core.hookspecs import Register, RunnerFactory
    from amplifier_core.session import AmplifierSession

    from ..bundle.model import Bundle
    from ..spawning.child import Spawn
    from .run_events import Publisher


class WorkflowRunner:
    """Takes the steps of a workflow in place of a turn; the metadata of the spawn name it, with its input."""

    def __init__(self) -> None:
        self._running: dict[str, AmplifierSession] = {}

    def check(self, bundle: Bundle, name: str) -> None:
        """Return for a workflow of the bundle that can run. Raises `FlowError`."""
        from .reading import find_workflow

        find_workflow(bundle, name)

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> RunResult:
        """Make the session of the run and take its steps; while some wait for a person, the session is held."""
        from amplifier_core.hook_data import RunResult as Result

        from ..spawning.life import ChildBuilder

        assert isinstance(build, ChildBuilder)  # a background session makes it
        async with build(request) as session:
            self._running[request.session_id] = session
            try:
                outputs = await _take(build.spawn, session)
            finally:
                del self._running[request.session_id]
        return Result(json.dumps(outputs, ensure_ascii=False, default=str))

    async def stop(self, session_id: str) -> bool:
        """Ask a run to end when its running tools have finished."""
        session = self._running.get(session_id)
        if session is not None:
            session.coordinator.cancellation.request_graceful()
        return session is not None


async def _take(spawn: Spawn, session: AmplifierSession) -> dict[str, object]:
    from ..background.approval_inbox import ApprovalInbox
    from ..background.partial_store import complete_store
    from ..bundle.templates import FOREIGN
    from ..spawning.agents import AgentSpawner
    from ..spawning.family import Tree
    from .asking import TOOL, DirectApprovals, InboxApprovals
    from .graph import Graph
    from .reading import find_workflow
    from .run_events import RunEvents
    from .taking import FLOW, take_steps

    store, asked, cause = complete_store(spawn.store), spawn.asked, spawn.cause
    assert asked is not None and cause is not None
    record = await store.get(session.session_id)
    graph = Graph(find_workflow(spawn.prepared.bundle, record.metadata[FLOW]["name"]))
    agents = AgentSpawner(spawn.prepared, store, spawn.router, spawn.plugins, session, record.project)
    approvals = (
        InboxApprovals(asked, record.session_id, record.project)
        if isinstance(asked, ApprovalInbox)
        else DirectApprovals(asked)
    )
    clock = Tree.of(session).clock
    events = RunEvents(store, record, graph.workflow.name, cause, clock, cast("Publisher | None", spawn.router))
    is_foreign = cause.type in FOREIGN
    taken = await take_steps(
        graph, store, record, session, agents, approvals, events, is_foreign=is_foreign, clock=clock
    )
    if taken.waits and spawn.recorder is not None:
        await spawn.recorder.held.hold(FLOW, TOOL)
    return dict(taken.outputs)


@hookimpl
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Offer `runner-workflow`."""
    register("runner-workflow", WorkflowRunner)
