"""Start and resume runs of workflows."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict, SessionNotFound, StaleEpoch, StoreUnavailable
from amplifier_core.frozen import frozen
from amplifier_core.ids import new_session_id
from amplifier_core.storage import Inbox

from ..background.approval_inbox import ApprovalInbox
from ..background.approvals import WAITS, read_approvals, save
from ..background.giving_back import make_due
from ..background.keys import run_of
from ..background.partial_store import complete_store
from ..background.store_clock import clock_of
from ..bundle.overrides import DAY
from ..paths import project_of
from ..security import read_policy
from ..sessions.accounts import ACCOUNTS
from ..sessions.forks import fork_stored
from ..sessions.held import HELD
from ..sessions.lock import session_lock
from ..sessions.presence import as_it_is, is_running, refuse_occupied
from ..sessions.recording import shield_to_completion
from ..sessions.records import new_record, resume_changes, with_members
from ..sessions.untrusted import taint
from ..spawn import prepared_bundle
from ..spawning.agents import AgentSpawner
from ..spawning.family import TREE, Tree
from .asking import TOOL, DirectApprovals, InboxApprovals, ask_to_cancel, forget_cancel
from .claims import Claim, find_open
from .description import describe_workflow, digest_of, has_digest
from .errors import CANCELLED, CHANGED, INVALID, FlowError
from .graph import Graph
from .journal import Entry
from .references import check_references
from .run_events import RunEvents
from .taking import FLOW, Taken, take_steps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.clock import Clock
    from amplifier_core.permissions import Policy
    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore, SessionRecord, SessionStore

    from ..background.approvals import Approval
    from ..bundle.model import Bundle, PreparedBundle
    from ..events import EventRouter
    from .engine import Tell
    from .tasks import Workflow


@frozen
class RunResult:
    """The end of a run: `completed` with the outputs of its tasks by id, `failed` or `cancelled` with an error.

    A run that is `waiting` has the outputs so far, and the `questions` that a person has to answer.
    """

    run_id: str
    status: str
    outputs: Mapping[str, Any]
    error: FlowError | None = None
    questions: Sequence[Approval] = ()


async def run_workflow(
    workflow: Workflow,
    bundle: Bundle | PreparedBundle,
    store: DurableStore | SessionStore,
    plugins: Plugins,
    input: Mapping[str, Any] | None = None,
    *,
    resume: str | None = None,
    accept: bool = False,
    working_dir: Path | None = None,
    approval_system: ApprovalSystem | None = None,
    permissions: Policy | None = None,
    router: EventRouter | None = None,
    clock: Clock | None = None,
    tell: Tell | None = None,
    approval_timeout: float = DAY,
) -> RunResult:
    """Run a workflow with the agents of a bundle, or the rest of the run `resume`; what is done is not done again.

    Questions go to the approvals inbox, where they count as denied after `approval_timeout` seconds, or to the
    `approval_system`. `tell` hears of each task, as `Engine` says. Each finished task is durable before the next one
    begins. A failed run is resumed with its failed task. Raises `FlowError` for a workflow that cannot run, or has
    changed since the run began (unless you `accept` that), and `SessionConflict` while another process has the run.
    """
    graph = Graph(workflow)  # nothing is stored for one that cannot run
    prepared, complete = await prepared_bundle(bundle), complete_store(store)
    record = await _find_record(graph, prepared, complete, plugins, input, resume, working_dir, accept=accept)
    clock = clock or await clock_of(complete)
    with session_lock(record.session_id, is_run=True):
        record = await complete.get(record.session_id)  # as its last process left it
        record = _as_it_goes_on(record, workflow)
        refuse_occupied(record)
        claim = await Claim.take(complete, record, clock)
        if resume is not None:
            await forget_cancel(complete, record.project, resume)
        inbox = ApprovalInbox(complete, claim.delivery, prepared.bundle.digest, approval_timeout, clock)
        async with claim.renewing():
            if questions := await inbox.begin():
                return await _wait(complete, claim, inbox, record, questions)
            events = RunEvents(complete, record, workflow.name, claim.delivery.event, clock, router)
            taken: Taken | FlowError
            changes = resume_changes(record, lock=record.session_id)
            try:
                await complete.update(record.session_id, **changes, bundle_digest=prepared.bundle.digest)
                async with _open_parent(
                    prepared, complete, plugins, record, router, approval_system or inbox, permissions
                ) as (session, agents):
                    inbox.parent = session
                    asked = InboxApprovals(inbox, record.session_id, record.project)
                    approvals = DirectApprovals(approval_system) if approval_system is not None else asked
                    taken = await take_steps(
                        graph, complete, record, session, agents, approvals, events, clock=clock, tell=tell
                    )
            except FlowError as error:
                taken = error
            except BaseException:
                with suppress(StaleEpoch, StoreUnavailable, SessionNotFound):
                    await shield_to_completion(claim.put_back("interrupted", clock.now(), {"status": "interrupted"}))
                raise
            return await _settle(complete, claim, inbox, record, events, taken)


async def _settle(
    store: DurableStore,
    claim: Claim,
    inbox: ApprovalInbox,
    record: SessionRecord,
    events: RunEvents,
    taken: Taken | FlowError,
) -> RunResult:
    """End the run, or give it back until a person answers.

    A kill may come after the end of a run, and before anybody hears of it. So a completed run may be resumed: when
    nothing is left to do, its end is announced no second time.
    """
    if isinstance(taken, Taken) and taken.waits:
        return await _wait(store, claim, inbox, record, await inbox.end_attempt(), taken)
    result = _result_of(record, taken)
    is_known = (
        record.status == "completed" and record.message_count == (await store.get(record.session_id)).message_count
    )
    await shield_to_completion(_finish(claim, inbox, events, result, is_known=is_known))
    return result


async def _wait(
    store: DurableStore,
    claim: Claim,
    inbox: ApprovalInbox,
    record: SessionRecord,
    questions: Sequence[Approval],
    taken: Taken | None = None,
) -> RunResult:
    """Give the run back until a person answers its questions, or the first of them expires."""
    held = with_members((await store.get(record.session_id)).metadata, {HELD: {FLOW: {"tool": TOOL}}})
    reason = f"{WAITS}: {'; '.join(each.id for each in questions)}"
    await claim.put_back(reason, inbox.due(questions), {"status": "interrupted", "metadata": held})
    if any(each.is_decided for each in await inbox.read()):
        await make_due(store, claim.delivery.delivery_id)
    if taken is None:
        taken = Taken(await read_outputs(store, record.session_id), waits=True)
    return RunResult(record.session_id, "waiting", taken.outputs, None, questions)


def _result_of(record: SessionRecord, taken: Taken | FlowError) -> RunResult:
    if isinstance(taken, Taken):
        return RunResult(record.session_id, "completed", taken.outputs)
    return RunResult(record.session_id, "cancelled" if taken.code == CANCELLED else "failed", {}, taken)


async def _finish(
    claim: Claim, inbox: ApprovalInbox, events: RunEvents, result: RunResult, *, is_known: bool = False
) -> None:
    """Store the end of a run, and announce one that is not known yet."""
    error = result.error.to_dict() if result.error is not None else None
    end = events.end(result.status, {"outputs": dict(result.outputs), "error": error})
    text = str(result.error) if result.error is not None else None
    events.hand_on(await claim.finish([] if is_known else [end], {"status": result.status, "error": text}))
    await inbox.forget()


async def read_questions(store: DurableStore, record: SessionRecord, now: datetime | None = None) -> list[Approval]:
    """Return the questions of a run that wait for a person, the oldest first."""
    delivery = await find_open(store, record)
    if delivery is None:
        return []
    known, now = await read_approvals(store, delivery.project, delivery.queue), now or (await clock_of(store)).now()
    own = [each for each in known.values() if each.delivery_id == delivery.delivery_id]
    return sorted((each for each in own if each.at(now).state == "pending"), key=lambda each: each.created)


async def read_outputs(store: SessionStore, run_id: str) -> dict[str, Any]:
    """Return the outputs of the completed tasks of a run by id."""
    found = [Entry.of_message(message) for message in await store.read(run_id)]
    return {entry.task: entry.output for entry in found if entry is not None and entry.status == "completed"}


async def _find_record(
    graph: Graph,
    prepared: PreparedBundle,
    store: SessionStore,
    plugins: Plugins,
    input: Mapping[str, Any] | None,
    resume: str | None,
    working_dir: Path | None,
    *,
    accept: bool,
) -> SessionRecord:
    """Return the record of a stored run, or store that of a new one.

    Raises `FlowError` for a changed workflow, and for a new one that cannot run. A stored run goes on without an agent
    that is gone, when its tasks are done.
    """
    if resume is not None:
        record = await store.get(resume)
        digest = record.metadata[FLOW].get("digest")
        if not accept and digest is not None and not has_digest(graph.workflow, digest):
            message = f"the workflow has changed since the run {resume} began. Accept that, or begin a new run"
            raise FlowError(CHANGED, message)
        return record
    given = {**graph.workflow.input, **(input or {})}
    check_references(graph.workflow, prepared.bundle, plugins, given)
    name, project = graph.workflow.name, project_of(working_dir)
    run_id = new_session_id(name)
    metadata = {FLOW: {"name": name, "input": given, "digest": digest_of(describe_workflow(graph.workflow))}}
    record = new_record(prepared, run_id, name=name, project=project, metadata=metadata)
    accounts = list(Tree.below(run_id, prepared.bundle, record.created).accounts)
    return await store.create(replace(record, status="idle", metadata={**record.metadata, ACCOUNTS: accounts}))


def _as_it_goes_on(record: SessionRecord, workflow: Workflow) -> SessionRecord:
    """Return the record of a run that waits for nobody, and goes on with this workflow: a change was accepted."""
    about = {**record.metadata[FLOW], "digest": digest_of(describe_workflow(workflow))}
    return replace(record, metadata={**with_members(record.metadata, {HELD: {}}), FLOW: about})


@asynccontextmanager
async def _open_parent(
    prepared: PreparedBundle,
    store: SessionStore,
    plugins: Plugins,
    record: SessionRecord,
    router: EventRouter | None,
    approval_system: ApprovalSystem,
    permissions: Policy | None,
) -> AsyncIterator[tuple[AmplifierSession, AgentSpawner]]:
    """Make the session above those of the tasks; it takes no turn itself."""
    agents = AgentSpawner(prepared, store, router, plugins, working_dir=record.project)
    tree = Tree.below(record.session_id, prepared.bundle, record.created, record.metadata)
    session = await prepared.create_session(
        session_id=record.session_id,
        session_cwd=record.project,
        config=deepcopy(prepared.mount_plan),
        plugins=plugins,
        approval_system=approval_system,
        permissions=permissions or read_policy(record.project),
        capabilities={TREE: tree, **agents.capabilities_of(record.session_id)},
    )
    taint(session, record.metadata)
    agents.take(session)
    try:
        yield session, agents
    finally:
        await session.cleanup()


async def fork_run(
    store: SessionStore, source: SessionRecord, task: str, plugins: Plugins | None = None
) -> SessionRecord:
    """Store a fork of a run that shares everything before a task, and return its record; `resume` runs the rest.

    `task` is an id, or the key of one of its iterations. A task that waits for a person is asked about anew.

    Raises `FlowError` for a task that the run has not come to, and `ForkRefused`.
    """
    messages = await store.read(source.session_id)
    entries = [Entry.of_message(message) for message in messages]
    named = (task, f"approval:{task}")
    places = (place for place, entry in enumerate(entries) if entry and (entry.task == task or entry.key in named))
    at = next(places, None)
    if at is None and isinstance(store, Inbox):
        keys = [str(each.arguments.get("task")) for each in await read_questions(complete_store(store), source)]
        at = len(messages) if task in (*keys, *(key.partition("#")[0] for key in keys)) else None
    if at is None:
        raise FlowError(INVALID, f"the run {source.session_id} has not come to it", task)
    return await fork_stored(store, source, message=at, plugins=plugins)


async def cancel_run(store: DurableStore, record: SessionRecord, clock: Clock | None = None) -> bool:
    """End a run that runs or waits; return whether it has ended, else its process ends it soon.

    Raises `SessionConflict` for a run that has ended.
    """
    clock, run_id = clock or await clock_of(store), record.session_id
    delivery = await find_open(store, record)
    if delivery is None:
        raise SessionConflict(run_id, f"the run {run_id} has ended: it is {as_it_is(record).status}")
    if delivery.state == "claimed" and (run_of(delivery) is None or is_running(record)):
        await ask_to_cancel(store, record.project, run_id)
        return False
    name = str(record.metadata[FLOW]["name"])
    error = FlowError(CANCELLED, f"a person has cancelled the run {run_id}")
    if run_of(delivery) is None:
        await store.drop(delivery.delivery_id, reason="a person has cancelled it")
        known = (await read_approvals(store, delivery.project, delivery.queue)).values()
        asked = [each for each in known if each.delivery_id == delivery.delivery_id and each.state == "pending"]
        await save(store, delivery.project, delivery.queue, {each.id: None for each in asked})  # a resumed run asks
        await store.update(
            run_id, status="cancelled", metadata=with_members(record.metadata, {HELD: {}}), error=str(error)
        )
        events = RunEvents(store, record, name, delivery.event, clock)
        await events.publish(events.end("cancelled", {"outputs": {}, "error": error.to_dict()}))
        return True
    with session_lock(run_id, is_run=True):
        claim = await Claim.take(store, record, clock)
        await store.update(run_id, metadata=with_members(record.metadata, {HELD: {}}))
        events = RunEvents(store, record, name, claim.delivery.event, clock)
        inbox = ApprovalInbox(store, claim.delivery, "", DAY, clock)
        await inbox.begin()
        await _finish(claim, inbox, events, _result_of(record, error))
    return True
