"""Run the sessions of background sessions with a `workflow:`: the session of an event is a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from amplifier_core.hookspecs import hookimpl

from ..spawning.runners import InProcessRunner

if TYPE_CHECKING:
    from amplifier_core.hook_data import SessionBuilder, SpawnRequest
    from amplifier_core.hookspecs import Register, RunnerFactory
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession

    from ..bundle.model import Bundle
    from ..spawning.child import Spawn
    from .run_events import Publisher


class WorkflowRunner(InProcessRunner):
    """Takes the steps of a workflow in place of a turn; the metadata of the spawn name it, with its input."""

    def check(self, bundle: Bundle, name: str) -> None:
        """Return for a workflow of the bundle that can run. Raises `FlowError`."""
        from .reading import find_workflow

        find_workflow(bundle, name)

    def check_agents(self, bundle: Bundle, name: str, plugins: Plugins | None) -> None:
        """Return for a workflow whose agents the bundle knows. Raises `FlowError`."""
        from .reading import find_workflow
        from .references import check_agents

        check_agents(find_workflow(bundle, name), bundle, plugins)

    async def take(self, session: AmplifierSession, request: SpawnRequest, build: SessionBuilder) -> str:
        """Take the steps; while some wait for a person, the session is held."""
        from ..spawning.child_session import ChildBuilder

        assert isinstance(build, ChildBuilder)  # a background session makes it
        return json.dumps(await _take(build.spawn, session), ensure_ascii=False, default=str)


async def _take(spawn: Spawn, session: AmplifierSession) -> dict[str, object]:
    from ..background.approval_inbox import ApprovalInbox
    from ..background.partial_store import complete_store
    from ..bundle.templates import is_from_outside
    from ..spawning.agents import AgentSpawner
    from ..spawning.family import Tree
    from .asking import TOOL, DirectApprovals, InboxApprovals
    from .graph import Graph
    from .reading import find_workflow
    from .references import check_references
    from .run_events import RunEvents
    from .taking import FLOW, take_steps

    store, asked, cause = complete_store(spawn.store), spawn.asked, spawn.cause
    assert asked is not None and cause is not None
    record = await store.get(session.session_id)
    graph = Graph(find_workflow(spawn.prepared.bundle, record.metadata[FLOW]["name"]))
    if not record.message_count:  # a run that has begun goes on without an agent that is gone, if its tasks are done
        given = {**graph.workflow.input, **record.metadata[FLOW]["input"]}
        check_references(graph.workflow, spawn.prepared.bundle, spawn.plugins, given)
    agents = AgentSpawner(spawn.prepared, store, spawn.router, spawn.plugins, working_dir=record.project)
    agents.take(session)
    approvals = (
        InboxApprovals(asked, record.session_id, record.project)
        if isinstance(asked, ApprovalInbox)
        else DirectApprovals(asked)
    )
    clock = Tree.of(session).clock
    events = RunEvents(store, record, graph.workflow.name, cause, clock, cast("Publisher | None", spawn.router))
    taken = await take_steps(
        graph,
        store,
        record,
        session,
        agents,
        approvals,
        events,
        is_foreign=is_from_outside(cause),
        accepts_unfinished=spawn.accepts_unfinished,
        clock=clock,
    )
    if taken.waits and spawn.recorder is not None:
        await spawn.recorder.held.hold(FLOW, TOOL)
    return dict(taken.outputs)


@hookimpl
def amplifier_register_runner(register: Register[RunnerFactory]) -> None:
    """Offer `runner-workflow`."""
    register("runner-workflow", WorkflowRunner)
