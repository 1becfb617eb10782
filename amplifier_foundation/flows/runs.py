"""Start and resume runs of workflows."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen
from amplifier_core.ids import new_session_id

from ..paths import project_of
from ..security import read_policy
from ..sessions.forks import fork_stored
from ..sessions.lock import session_lock
from ..sessions.presence import refuse_occupied
from ..sessions.records import new_record, resume_changes
from ..spawn import prepared_bundle
from ..spawning.agents import AgentSpawner
from .description import KEY, describe_workflow, digest_of, without_secrets
from .engine import Engine
from .errors import INVALID, FlowError
from .graph import Graph
from .journal import Entry, Journal
from .turns import AgentTurns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.clock import Clock
    from amplifier_core.permissions import Policy
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message

    from ..bundle.model import Bundle, PreparedBundle
    from ..events import EventRouter
    from .engine import Tell
    from .tasks import Workflow

FLOW = "flow"
"""The member of the metadata of a run's record: the name of its workflow, its input, and the digest of its steps."""


@frozen
class RunResult:
    """The end of a run: `completed` with the outputs of its tasks by id, or `failed` with the error of a task."""

    run_id: str
    status: str
    outputs: Mapping[str, Any]
    error: FlowError | None = None


async def run_workflow(
    workflow: Workflow,
    bundle: Bundle | PreparedBundle,
    store: SessionStore,
    plugins: Plugins,
    input: Mapping[str, Any] | None = None,
    *,
    resume: str | None = None,
    working_dir: Path | None = None,
    approval_system: ApprovalSystem | None = None,
    permissions: Policy | None = None,
    router: EventRouter | None = None,
    clock: Clock | None = None,
    tell: Tell | None = None,
) -> RunResult:
    """Run a workflow with the agents of a bundle, or the rest of the run `resume`; what is done is not done again.

    `tell` hears of each task, as `Engine` says. Each finished task is durable before the next one begins. A failed run
    is resumed with its failed task. Raises `FlowError` for a workflow that cannot run, and `SessionConflict` while
    another process has the run.
    """
    graph = Graph(workflow)  # nothing is stored for one that cannot run
    prepared = await prepared_bundle(bundle)
    record = await _find_record(workflow, prepared, store, input, resume, working_dir)
    with session_lock(record.session_id):
        refuse_occupied(record)
        await store.update(record.session_id, **resume_changes(record))
        status, error, outputs = "interrupted", None, dict[str, Any]()
        try:
            journal = await Journal.read(store, record.session_id)
            async with _open_parent(
                prepared, store, plugins, record, router, approval_system=approval_system, permissions=permissions
            ) as agents:
                turns = AgentTurns(agents, store, record.session_id)
                outputs = await Engine(graph, journal, turns, record.metadata[FLOW]["input"], clock, tell).run()
            status = "completed"
        except FlowError as problem:
            status, error = "failed", problem
        finally:
            await store.update(record.session_id, status=status, error=str(error) if error is not None else None)
    return RunResult(record.session_id, status, outputs, error)


async def _find_record(
    workflow: Workflow,
    prepared: PreparedBundle,
    store: SessionStore,
    input: Mapping[str, Any] | None,
    resume: str | None,
    working_dir: Path | None,
) -> SessionRecord:
    """Return the record of a stored run, or store that of a new one."""
    if resume is not None:
        return await store.get(resume)
    description = without_secrets(describe_workflow(workflow))
    metadata = {FLOW: {"name": workflow.name, "input": dict(input or {}), "digest": digest_of(description)}}
    name, project = workflow.name, project_of(working_dir)
    record = new_record(prepared, new_session_id(name), name=name, project=project, metadata=metadata)
    await store.create(replace(record, status="idle"))
    told = json.dumps(dict(input or {}), ensure_ascii=False, default=str)
    first: Message = {"role": "user", "content": f"Run {name} with {told}", "metadata": {KEY: description}}
    await store.append(record.session_id, [first], at=0)
    return await store.get(record.session_id)


@asynccontextmanager
async def _open_parent(
    prepared: PreparedBundle,
    store: SessionStore,
    plugins: Plugins,
    record: SessionRecord,
    router: EventRouter | None,
    *,
    approval_system: ApprovalSystem | None,
    permissions: Policy | None,
) -> AsyncIterator[AgentSpawner]:
    """Make the session above those of the tasks; it takes no turn itself."""
    agents = AgentSpawner(prepared, store, router, plugins, working_dir=record.project)
    session = await prepared.create_session(
        session_id=record.session_id,
        session_cwd=record.project,
        plugins=plugins,
        approval_system=approval_system,
        permissions=permissions or read_policy(record.project),
        capabilities=agents.capabilities_of(record.session_id),
    )
    agents.take(session)
    try:
        yield agents
    finally:
        await session.cleanup()


async def fork_run(
    store: SessionStore, source: SessionRecord, task: str, plugins: Plugins | None = None
) -> SessionRecord:
    """Store a fork of a run that shares everything before a task, and return its record; `resume` runs the rest.

    Raises `FlowError` for a task that the run has not come to, and `ForkRefused`.
    """
    messages = await store.read(source.session_id)
    entries = [Entry.of_message(message) for message in messages]
    at = next((place for place, entry in enumerate(entries) if entry is not None and entry.task == task), None)
    if at is None:
        raise FlowError(INVALID, f"the run {source.session_id} has not come to it", task)
    return await fork_stored(store, source, message=at, plugins=plugins)
