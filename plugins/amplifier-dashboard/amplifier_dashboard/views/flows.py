"""Show the runs of workflows, each with its graph as it fills in, and answer what they ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from amplifier_core.errors import SessionConflict, SessionNotFound
from amplifier_foundation.background.keys import run_of
from amplifier_foundation.flows.asking import task_of
from amplifier_foundation.flows.picture import draw_runs
from amplifier_foundation.flows.progress import text_of
from amplifier_foundation.flows.runs import read_questions
from amplifier_foundation.operations.approvals import answer_approval
from amplifier_foundation.operations.running import wake
from amplifier_foundation.operations.runs import cancel_run, fork_run, read_entries, record_run, resume_event_run
from amplifier_foundation.operations.sessions import find_session
from amplifier_foundation.sessions.costs import spent_of
from amplifier_foundation.sessions.presence import status_of
from amplifier_foundation.sessions.runs import is_run
from amplifier_foundation.sessions.store_views import views_of

from ..pages import Act, Page, Reply, View
from ..rendering import render_block
from ..resumed_runs import ResumedRun
from .session import actor, title_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from amplifier_core.storage import SessionRecord

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "flows.html"
SHOWN, LOOKED_AT, AT_ONCE = 50, 1_000, 250
"""Runs on a page, the sessions that one page looks at, and those read at once."""
TASKS = 200
"""Sessions of tasks that are read for a picture."""
WORDS = 400
"""Characters of an output in the table."""


async def flows(desk: Desk, place: Place) -> Page:
    """Return the runs among the sessions changed last; older ones are a page further."""
    before = place.query.get("before") or None
    found, last = await read_runs(desk, before)
    rows = [{"record": each, "status": status_of(each), "spent": str(spent_of(each))} for each in found]
    parts = {"runs": render_block(TEMPLATE, "runs", {"rows": rows, "last": last, "before": before})}
    return Page("Workflows", TEMPLATE, parts)


async def read_runs(desk: Desk, before: str | None) -> tuple[list[SessionRecord], str]:
    """Return runs, the last changed first, and the last session that was looked at, if there are more."""
    views, seen = views_of(desk.store), 0
    found: list[SessionRecord] = []
    while len(found) < SHOWN and seen < LOOKED_AT:
        page = await views.session_page(before=before, limit=AT_ONCE)
        for each in page:
            before = each.session_id
            found += [each] if is_run(each) else []
            if len(found) == SHOWN:
                return found, before
        seen += len(page)
        if len(page) < AT_ONCE:
            return found, ""
    return found, before or ""


async def flow(desk: Desk, place: Place) -> Page:
    """Return one run: its graph, its tasks with their sessions, and its questions."""
    record = await find_run(desk, place)
    tasks = await desk.store.sessions(parent_id=record.session_id, limit=TASKS)
    pictures = await draw_runs(desk.store, [record, *tasks])
    entries = await read_entries(desk.store, record)
    questions = await read_questions(desk.store, record)
    status, is_own = status_of(record), record.event_id is None
    values: dict[str, Any] = {
        "record": record,
        "status": status,
        "spent": str(spent_of(record)),
        "name": record.metadata["flow"]["name"],
        "picture": Markup(pictures.get(record.session_id, "")),  # every text in it is escaped
        "tasks": [{"entry": each, "text": "" if each.output is None else text_of(each.output)} for each in entries],
        "words": WORDS,
        "questions": [{"approval": each, "task": task_of(each) or each.session_id} for each in questions],
        "read_only": desk.read_only,
        "is_own": is_own,
        "goes_on": status in ("failed", "cancelled")
        or (is_own and (status in ("interrupted", "idle") or (status == "waiting" and not questions))),
    }
    parts = {name: render_block("flow.html", name, values) for name in ("state", "picture", "questions", "tasks")}
    return Page(title_of(record), "flow.html", parts, facts={"record": record, "name": values["name"]})


async def find_run(desk: Desk, place: Place) -> SessionRecord:
    """Return the run of a path. Raises `SessionNotFound`."""
    record = await find_session(desk.store, place.variables["run_id"])
    if not is_run(record):
        raise SessionNotFound(record.session_id)
    return record


async def approve(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Allow what the run waits for."""
    return await _answer(desk, place, form, "approved")


async def deny(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Refuse what the run waits for."""
    return await _answer(desk, place, form, "denied")


async def _answer(
    desk: Desk, place: Place, form: Mapping[str, str], state: Literal["approved", "denied"]
) -> Reply:  # fmt: skip
    record = await find_run(desk, place)
    waiting = [each for each in await read_questions(desk.store, record) if each.id == form.get("approval")]
    if not waiting:
        raise SessionConflict(record.session_id, "this question is answered already")
    decided = await answer_approval(
        desk.store, actor(desk), waiting[0], state, "once", form.get("reason", "").strip(), noun="flow"
    )
    if await read_questions(desk.store, record):
        return Reply(f"It is {state}; more of the run waits for an answer.")
    if run_of(decided) is not None:
        return Reply(f"It is {state}. Go on with the run now.")
    runs = await asyncio.to_thread(wake, decided.project, decided.queue)
    return Reply(f"It is {state}; the run goes on {'now' if runs else 'when its background session runs'}.")


async def cancel(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """End the run."""
    is_over = await cancel_run(desk.store, actor(desk), await find_run(desk, place))
    return Reply("The run is cancelled." if is_over else "The run is asked to end.")


async def resume(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Run the rest of the run in this process, also when the page is left; one of an event goes on in `up`."""
    record = await find_run(desk, place)
    run_id = record.session_id
    if record.event_id is not None:
        delivery = await resume_event_run(desk.store, actor(desk), record)
        runs = await asyncio.to_thread(wake, delivery.project, delivery.queue)
        return Reply(f"The run goes on {'now' if runs else 'when its background session runs'}.")
    await desk.talks.begin(run_id, ResumedRun(desk, record, accept=bool(form.get("accept"))))
    await record_run(desk.store, actor(desk), "flow.resume", record)
    return Reply("The run goes on.")


async def fork(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Fork the run before a task, and go to the fork."""
    record = await fork_run(
        desk.store, actor(desk), await find_run(desk, place), form.get("task", ""), desk.plugins
    )  # fmt: skip
    return Reply("The fork shares what was done before. Go on with it.", f"/flows/{record.session_id}")


VIEWS = [View("/flows", flows, label="Workflows", key="w"), View("/flows/{run_id}", flow)]
ACTS = [
    Act("/flows/{run_id}/approve", approve),
    Act("/flows/{run_id}/deny", deny),
    Act("/flows/{run_id}/cancel", cancel),
    Act("/flows/{run_id}/resume", resume),
    Act("/flows/{run_id}/fork", fork),
]
