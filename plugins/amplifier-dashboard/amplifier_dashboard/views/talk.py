"""Talk to a session, beside the one that it is a fork of."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, SessionNotFound
from amplifier_foundation.operations.acting import record_act
from amplifier_foundation.sessions.presence import as_it_is, refuse_occupied
from amplifier_foundation.sessions.runs import refuse_run

from ..messages import read_entries
from ..pages import Act, Feed, Page, Reply, View
from ..rendering import render_block
from ..talks import Talk
from ..written import follow_written
from .session import actor, find_record, render_asked, render_state, title_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.storage import SessionRecord

    from ..desk import Desk
    from ..pages import Entry, Place

TEMPLATE = "talk.html"
SHOWN = 100
"""Messages of each side."""


class NothingSaid(AmplifierError, ValueError):
    """A turn needs a prompt."""


async def talk(desk: Desk, place: Place) -> Page:
    """Return the messages of a session that are its own, those of its source beside them, and where to talk."""
    record = await find_record(desk, place)
    source = None
    with suppress(SessionNotFound):  # it was deleted; the fork has its messages
        source = as_it_is(await desk.store.get(record.fork_of)) if record.fork_of else None
    own = record.fork_at or 0 if source is not None else 0

    async def since(number: int) -> Sequence[Entry]:
        return await read_entries(
            desk, record, max(number, own, record.message_count - SHOWN), forks=not desk.read_only
        )

    async def since_in_source(number: int) -> Sequence[Entry]:
        assert source is not None  # the feed is there for one
        start = max(number, min(own, source.message_count) - SHOWN // 2, 0)
        return await read_entries(desk, source, start, start + SHOWN, prefix="s", forks=False)

    feeds = {"messages": Feed(since, keep=SHOWN)}
    if source is not None:
        feeds["source"] = Feed(since_in_source, keep=SHOWN)
    running = desk.talks.find(record.session_id)
    values = {"record": record, "refusal": _refusal(record) if running is None else "", "runs": running is not None}
    parts = {
        "asked": render_asked(desk, record),
        "send": render_block(TEMPLATE, "send", values),
        "state": render_state(desk, record),
    }
    live = running.written.render() if running else render_block("live.html", "live", {"doing": "", "text": ""})
    facts = {"record": record, "source": source, "own": own, "live": live, "tab": "talk"}
    return Page(
        title_of(record), TEMPLATE, parts, feeds, lambda: follow_written(desk, record.session_id), facts
    )  # fmt: skip


def _refusal(record: SessionRecord) -> str:
    """Return why nobody can talk in a session now; '' for one that waits for a prompt."""
    try:
        refuse_run(record)
        refuse_occupied(record)
    except AmplifierError as error:
        return str(error)
    return ""


async def say(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Begin a turn with a prompt; it goes on when the page is left."""
    record = await find_record(desk, place)
    text = form.get("prompt", "").strip()
    if not text:
        raise NothingSaid("write what the session shall do")
    await desk.talks.begin(record.session_id, Talk(desk, record, text, accept=bool(form.get("accept"))))
    desk.changes.note()
    facts = {"project": record.project, "session_id": record.session_id}
    await record_act(desk.store, actor(desk), "session.resume", record.session_id, **facts)
    return Reply("The turn runs.")


VIEWS = [View("/sessions/{session_id}/talk", talk)]
ACTS = [Act("/sessions/{session_id}/say", say)]
