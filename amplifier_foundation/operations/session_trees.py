"""Read the sessions of a tree: those below one, or the last changed ones with those above them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.errors import SessionNotFound, StoreError

from ..sessions.lineage import above_id
from ..sessions.runs import is_run
from ..sessions.store_views import queries_of
from .sessions import read_deliveries

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery, SessionRecord, SessionStore

ASKED = 200
"""Sessions whose deliveries are asked for one by one; those of more are found among all."""


class TreeSessions(NamedTuple):
    """The sessions of a tree, and whether a limit has left out others."""

    records: list[SessionRecord]
    has_more: bool = False


async def read_subtree(store: SessionStore, root: SessionRecord, limit: int | None = None) -> TreeSessions:
    """Return a session and those below it, at most `limit`; a store with `SessionQueries` reads no others."""
    below = await queries_of(store).sessions_below(root.session_id, limit=limit)  # with the root one more
    return TreeSessions([root, *below][:limit], limit is not None and len(below) == limit)


async def read_forest(store: SessionStore, project: str | None, limit: int | None = None) -> TreeSessions:
    """Return the sessions of a project, or of all; with a `limit` the last changed ones, and those above them there."""
    newest = await store.sessions(project=project, limit=None if limit is None else limit + 1)
    if limit is None or len(newest) <= limit:
        return TreeSessions(newest)
    known = {each.session_id: each for each in newest[:limit]}
    for record in newest[:limit]:
        with suppress(SessionNotFound, StoreError):  # the one above is gone, or damaged
            while (above := above_id(record)) is not None and above not in known:
                record = await store.get(above)
                if project not in (None, record.project):
                    break
                known[above] = record
    return TreeSessions([*known.values()], has_more=True)


async def read_waking(store: SessionStore, records: list[SessionRecord], project: str | None) -> list[Delivery]:
    """Return the deliveries of sessions of a project (None: of any), as far as these have events."""
    woken = [each.session_id for each in records if each.event_id is not None or is_run(each)]
    if len(woken) > ASKED:
        return await read_deliveries(store, project=project)
    return [delivery for each in woken for delivery in await read_deliveries(store, session_id=each)]
