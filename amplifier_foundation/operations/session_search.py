"""Find stored sessions by their status, name and age, and by a text in their messages.

A store that shows pages is asked for the wanted sessions alone, and one with an index for the words of messages: the
number of the other sessions makes no difference.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.frozen import frozen

from ..sessions.presence import as_it_is

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from amplifier_core.storage import SessionRecord, SessionStore, Status

SEARCHED = 2_000
"""Messages that one search reads for a text within a word: those of the last changed sessions."""
FOUND = 1_000
"""Messages that one search takes from the index of a store at most; fewer, where they are of enough sessions."""


@frozen
class Wanted:
    """Say which sessions are wanted."""

    projects: Collection[str] | None = None
    """None: all."""
    statuses: Collection[Status] = ()
    name: str = ""
    """A part of the name or the id, in capitals or not."""
    begin: datetime | None = None
    """The earliest time of the last change."""

    def accepts(self, record: SessionRecord, text: str = "") -> bool:
        """Return whether a session of a wanted project is wanted; with a `text`, if it stands in its name or id."""
        return (
            (self.begin is None or record.updated >= self.begin)
            and (not self.statuses or record.status in self.statuses)
            and is_named(record, self.name.casefold())
            and is_named(record, text.casefold())
        )


class Found(NamedTuple):
    """Hold the sessions that a search has found, the last changed first."""

    records: list[SessionRecord]
    unread: int = 0
    """How many sessions were not read for a text within a word, when some were not."""
    read: int = 0


def is_named(record: SessionRecord, text: str) -> bool:
    """Return whether a folded text is in the name or the id of a session."""
    return text in record.name.casefold() or text in record.session_id.casefold()


async def find_sessions(store: SessionStore, wanted: Wanted, limit: int, text: str = "") -> list[SessionRecord]:
    """Return the wanted sessions as they are, the last changed first; with a `text`, those named so."""
    found = [
        record for project in _places(wanted) for record in await _find_in_project(store, project, wanted, limit, text)
    ]
    return _newest(found, limit)


async def search_sessions(store: SessionStore, wanted: Wanted, limit: int, text: str) -> Found:
    """Return the wanted sessions with a text in a message, the name or the id.

    The index of the store finds words; messages are read for a text within a word, as many as `SEARCHED`.
    """
    known = {each.session_id: each for each in await find_sessions(store, wanted, limit, text)}
    for project in _places(wanted):
        known |= await _find_indexed(store, project, wanted, limit, text.casefold())
    if len(known) >= limit:
        return Found(_newest(known.values(), limit))
    left, read = SEARCHED, 0
    newest = await find_sessions(store, wanted, SEARCHED)
    for record in newest:
        left -= record.message_count if record.session_id not in known else 0
        if left < 0 and read:
            break
        read += 1
        if record.session_id not in known and await _has_text(store, record, text.casefold()):
            known[record.session_id] = record
    more = read < len(newest) or len(newest) == SEARCHED
    return Found(_newest(known.values(), limit), len(newest) - read if more else 0, read)


def _places(wanted: Wanted) -> Collection[str | None]:
    return [None] if wanted.projects is None else set(wanted.projects)


def _newest(records: Iterable[SessionRecord], limit: int) -> list[SessionRecord]:
    return sorted(records, key=lambda each: each.updated, reverse=True)[:limit]


async def _find_in_project(
    store: SessionStore, project: str | None, wanted: Wanted, limit: int, text: str
) -> list[SessionRecord]:
    from amplifier_core.store_views import StoreViews

    if not isinstance(store, StoreViews):
        records = [as_it_is(each) for each in await store.sessions(project=project)]
        return [each for each in records if wanted.accepts(each, text)][:limit]
    statuses = set(wanted.statuses) | ({"running"} if "interrupted" in wanted.statuses else set())
    size = limit
    while True:  # a longer page, not the next one: a session that changes meanwhile would be in both or in none
        page = await store.session_page(project=project, statuses=statuses, text=text or wanted.name, limit=size)
        found = [record for each in page if wanted.accepts(record := as_it_is(each), text)]
        is_end = len(page) < size or (wanted.begin is not None and page[-1].updated < wanted.begin)
        if is_end or len(found) >= limit:
            return found[:limit]
        size *= 4


async def _find_indexed(
    store: SessionStore, project: str | None, wanted: Wanted, limit: int, text: str
) -> dict[str, SessionRecord]:
    """Return wanted sessions that have a text in a message, as far as the store finds its words."""
    from amplifier_core.errors import AmplifierError
    from amplifier_core.store_views import MessageSearch

    found: dict[str, SessionRecord] = {}
    if not isinstance(store, MessageSearch):
        return found
    looked_at, size = set[tuple[str, int]](), min(2 * limit, FOUND)
    with suppress(AmplifierError):  # the messages are read instead
        while True:
            matches = (await store.search_messages(text, project=project, limit=size)).matches
            for each in matches:
                place = each.session_id, each.position
                if place in looked_at or each.session_id in found:
                    continue
                looked_at.add(place)
                record = as_it_is(await store.get(each.session_id))
                if wanted.accepts(record) and await _has_text(store, record, text, each.position):
                    found[each.session_id] = record
            if len(found) >= limit or len(matches) < size or size >= FOUND:
                break
            size = min(4 * size, FOUND)
    return found


async def _has_text(store: SessionStore, record: SessionRecord, text: str, position: int | None = None) -> bool:
    """Return whether a message of a session, or the one at a position, has a folded text."""
    from ..sessions.history import text_of

    start, stop = (0, None) if position is None else (position, position + 1)
    return any(text in text_of(message).casefold() for message in await store.read(record.session_id, start, stop))
