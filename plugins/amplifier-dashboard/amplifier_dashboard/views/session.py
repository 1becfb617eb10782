"""Show one session: its transcript as it grows, what it does now, and what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from amplifier_foundation.operations.acting import Actor, record_act
from amplifier_foundation.operations.sessions import Point, find_session, fork_session, rename_session
from amplifier_foundation.sessions.costs import format_cost, format_duration, spent_of
from amplifier_foundation.sessions.lineage import describe_event, shared_part
from amplifier_foundation.sessions.lock import holder_of
from amplifier_foundation.sessions.presence import KEY as PROCESS
from amplifier_foundation.sessions.presence import as_it_is, describe, status_of
from amplifier_foundation.sessions.records import agent_of
from amplifier_foundation.sessions.runs import RUN, is_run

from ..messages import SHOWN, read_entries
from ..pages import Act, Feed, Page, Reply, View
from ..rendering import render_block
from ..written import follow_written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from amplifier_core.storage import SessionRecord

    from ..desk import Desk
    from ..pages import Entry, Place

TEMPLATE = "session.html"
MADE = 20
"""Sessions below this one that are listed."""


async def session(desk: Desk, place: Place) -> Page:
    """Return a session with its last messages, or with those up to `?to=m1200`."""
    record = await find_record(desk, place)
    count = record.message_count
    to = min(count, _number_of(place.query.get("to", ""))) or None
    first = max(0, (to or count) - SHOWN)

    async def since(number: int) -> Sequence[Entry]:
        start = max(number, first)
        if to is not None and start >= to:
            return []
        return await read_entries(desk, record, start, to, forks=not desk.read_only and not is_run(record))

    talk = desk.talks.find(record.session_id)
    parts = {
        **await read_facts(desk, record),
        "around": render_block(TEMPLATE, "around", {"record": record, "first": first, "to": to, "shown": SHOWN}),
        "asked": render_asked(desk, record),
    }
    facts = {
        "record": record,
        "tab": "transcript",
        "is_last": to is None,
        "live": talk.written.render() if talk else render_block("live.html", "live", {"doing": "", "text": ""}),
    }
    stream = (lambda: follow_written(desk, record.session_id)) if to is None else None
    return Page(title_of(record), TEMPLATE, parts, {"messages": Feed(since, keep=SHOWN)}, stream, facts)


async def find_record(desk: Desk, place: Place) -> SessionRecord:
    """Return the session of a path, as it is now; the beginning of an id is enough. Raises `SessionNotFound`."""
    return as_it_is(await find_session(desk.store, place.variables["session_id"]))


def _number_of(text: str) -> int:
    """Return the number of a message such as m1200; 0 for anything else."""
    number = text.removeprefix("m")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0


def title_of(record: SessionRecord) -> str:
    """Return what a session is called."""
    return record.name or record.session_id


async def read_facts(desk: Desk, record: SessionRecord) -> dict[str, Markup]:
    """Return the parts `state`, `facts` and `below`."""
    from amplifier_foundation.background.worktrees import read_worktree

    session_id = record.session_id
    woken = await desk.store.deliveries(session_id=session_id, limit=1) if record.event_id is not None else []
    made = await desk.store.sessions(parent_id=record.session_id, limit=MADE + 1)
    spent = spent_of(record)
    worktree = read_worktree(record.session_id)
    process = str(record.metadata.get(PROCESS) or "")
    values = {
        "record": record,
        "agent": agent_of(record),
        "shared": shared_part(record),
        "run": record.metadata.get(RUN) if not is_run(record) else None,
        "woken": woken[0] if woken else None,
        "cause": describe_event(woken[0].event) if woken else "",
        "process": describe(process) if process and record.status == "running" else "",
        "worktree": worktree.path if worktree is not None else "",
        "duration": None if spent.duration is None else format_duration(spent.duration),
        "usage": spent.usage,
        "cost": format_cost(spent.usage) if spent.usage else "",
        "made": [(each, status_of(each)) for each in made[:MADE]],
        "has_more": len(made) > MADE,
    }
    drawn = {name: render_block(TEMPLATE, name, values) for name in ("facts", "below")}
    return {"state": render_state(desk, record), **drawn}


def render_state(desk: Desk, record: SessionRecord) -> Markup:
    """Return the part `state`: the status, the error, and how a running turn is cancelled: here, or by its process."""
    holder = holder_of(record.session_id) if desk.talks.find(record.session_id) is None else None
    about = {"title": title_of(record), "is_run": is_run(record), "holder": holder}
    values = {"record": record, "status": status_of(record), "read_only": desk.read_only, **about}
    return render_block(TEMPLATE, "state", values)


def render_asked(desk: Desk, record: SessionRecord) -> Markup:
    """Return the part `asked`: the question of a turn that runs in this process."""
    talk = desk.talks.find(record.session_id)
    question = talk.question if talk is not None else None
    values = {"record": record, "question": question, "status": status_of(record), "read_only": desk.read_only}
    return render_block(TEMPLATE, "asked", values)


async def message(desk: Desk, place: Place) -> Page:
    """Return one message as a whole, as text."""
    import json

    from amplifier_foundation.sessions.exporting import title_of as author_of
    from amplifier_foundation.sessions.history import text_of

    record = await find_record(desk, place)
    number = _number_of(place.variables["number"])
    found = await desk.store.read(record.session_id, number - 1, number) if number else []
    if not found:
        raise HTTPException(404, f"session {record.session_id} has no message m{number or 0}")
    calls = [json.dumps(each, ensure_ascii=False, indent=2, default=str) for each in found[0].get("tool_calls") or ()]
    facts = {"record": record, "number": number, "author": author_of(found[0])}
    return Page(f"m{number}", "whole.html", {}, facts={**facts, "text": text_of(found[0]), "calls": calls})


# acts


async def rename(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Give the session another name."""
    renamed = await rename_session(desk.store, actor(desk), place.variables["session_id"], form.get("name", ""))
    return Reply(f"Its name is {renamed.name} now.")


async def fork(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Fork the session after a message, and go to talk to the fork."""
    source = await find_record(desk, place)
    number = _number_of(form.get("message", ""))
    point = Point(source.session_id, message=number or None)
    forked = await fork_session(desk.store, actor(desk), source, point, plugins=desk.plugins)
    its_id = forked.record.session_id
    return Reply(f"{its_id} shares m1 to m{forked.place.at}.", f"/sessions/{its_id}/talk")


async def cancel(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """End the running turn as cancelled."""
    record = await find_record(desk, place)
    talk = desk.talks.find(record.session_id)
    if talk is not None:
        await talk.stop()
        await record_act(
            desk.store, actor(desk), "session.cancel", record.session_id, project=record.project,
            session_id=record.session_id,
        )  # fmt: skip
        return Reply("The turn is cancelled.")
    from amplifier_foundation.operations.cancelling import cancel_turn

    done = await cancel_turn(desk.store, actor(desk), record.session_id)
    return Reply("The turn is cancelled." if done else "The turn had ended by itself.")


async def answer(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Answer the question of a turn that runs in this process."""
    session_id, option = place.variables["session_id"], form.get("option", "")
    number = int(option) if option.isascii() and option.isdigit() else -1
    chosen = desk.talks.answer(session_id, form.get("question", ""), number)
    await record_act(
        desk.store, actor(desk), "session.answer", session_id, session_id=session_id, answer=chosen
    )  # fmt: skip
    return Reply(f"Answered: {chosen}.")


def actor(desk: Desk) -> Actor:
    """Return the person who acts."""
    return Actor(desk.person, "dashboard")


VIEWS = [View("/sessions/{session_id}", session), View("/sessions/{session_id}/messages/{number}", message)]
ACTS = [
    Act("/sessions/{session_id}/rename", rename),
    Act("/sessions/{session_id}/fork", fork),
    Act("/sessions/{session_id}/cancel", cancel),
    Act("/sessions/{session_id}/answer", answer),
]
