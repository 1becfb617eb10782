"""Read, end, fork and resume the runs of workflows, and record who did it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import SessionConflict
from amplifier_core.storage import Inbox

from ..sessions.presence import status_of as run_status  # noqa: F401 - the page of the version before imports it
from ..sessions.runs import RUN, is_run
from ..sessions.store_views import queries_of
from .acting import record_act
from .deliveries import find_uncertain

if TYPE_CHECKING:
    from collections.abc import Collection

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery, DurableStore, SessionRecord, SessionStore

    from ..flows.journal import Entry
    from .acting import Actor


async def list_runs(
    store: SessionStore, projects: Collection[str] | None = None, limit: int | None = None
) -> list[SessionRecord]:
    """Return the runs of these projects (None: of all), the last changed first."""
    queries = queries_of(store)
    found: list[SessionRecord] = []
    for project in [None] if projects is None else set(projects):
        found += filter(is_run, await queries.sessions_with(RUN, project=project))
    return sorted(found, key=lambda each: each.updated, reverse=True)[:limit]


async def read_entries(store: SessionStore, record: SessionRecord) -> list[Entry]:
    """Return what a run has done, in its order, then what waits for a person."""
    from ..flows.asking import task_of
    from ..flows.journal import Entry
    from ..flows.runs import read_questions

    found = [Entry.of_message(message) for message in await store.read(record.session_id)]
    ended = [each for each in found if each is not None and each.status not in ("chosen", "retried")]
    asked = await read_questions(store, record) if isinstance(store, Inbox) else []
    keys = [(task_of(each) or each.session_id, each) for each in asked]
    return [*ended, *(Entry(key, key, "waiting", output=each.question) for key, each in keys)]


async def cancel_run(store: DurableStore, actor: Actor, run: SessionRecord) -> bool:
    """End a run that runs or waits; return whether it has ended, else its process ends it soon.

    Raises `SessionConflict` for a run that has ended.
    """
    from ..flows.runs import cancel_run as cancel

    is_over = await cancel(store, run)
    await record_run(store, actor, "flow.cancel", run)
    return is_over


async def resume_event_run(store: DurableStore, actor: Actor, run: SessionRecord) -> Delivery:
    """Have the background session of a run that was cancelled, or has failed, go on with it; the caller calls `wake`.

    Raises `SessionConflict` for a run with nothing to resume, `DeliveryConflict` when somebody was faster, and
    `EffectsUncertain`.
    """
    from ..flows.asking import forget_cancel

    whose, run_id = f"the run {run.session_id} is that of a background session", run.session_id
    found = await store.deliveries(session_id=run_id, limit=1)
    if not found or found[0].state == "done":
        what = "it is completed" if found else "its event is no longer stored"
        raise SessionConflict(run_id, f"{whose}, and {what}. Fork it: amplifier flow fork {run_id} --at TASK")
    if found[0].state in ("pending", "claimed"):
        raise SessionConflict(run_id, f"{whose}; amplifier up goes on with it")
    for uncertain in (await find_uncertain(store, found)).values():
        raise uncertain
    await forget_cancel(store, run.project, run_id)  # before: the run begins at once
    due = await store.redeliver(found[0].delivery_id)
    await record_run(store, actor, "flow.resume", run)
    return due


async def fork_run(
    store: SessionStore, actor: Actor, run: SessionRecord, task: str, plugins: Plugins | None = None
) -> SessionRecord:
    """Store a fork of a run that shares everything before `task`. Raises the errors of `flows.runs.fork_run`."""
    from ..flows.runs import fork_run as fork

    record = await fork(store, run, task, plugins)
    await record_run(store, actor, "flow.fork", record, source=run.session_id, task=task)
    return record


async def record_run(store: SessionStore, actor: Actor, act: str, run: SessionRecord, **facts: str) -> None:
    """Record an act on a run: `flow.resume`, as it begins."""
    about = {"session_id": run.session_id, **facts}
    await record_act(store, actor, act, run.session_id, project=run.project, queue="", **about)
