"""Find stored sessions by their status, name and age, and by a text in their messages.

A store that shows pages is asked for the wanted sessions alone, and one with an index for the words of messages: the
number of the other sessions makes no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from amplifier_core.frozen import frozen
from amplifier_core.text_search import fold_text

from ..sessions.presence import WAITING, as_it_is, status_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.store_views import MessageMatch, MessageSearch

    class MessageSearchStore(SessionStore, MessageSearch, Protocol):
        """A store that finds messages."""


SEARCHED = 100_000
"""Messages that one search reads where the store does not know their words: that takes seconds."""
EXPANDED = 100
"""Words that a part of a word stands for at most."""
FOUND = 500
"""Messages that one search takes from the index of a store at most; fewer, where they are of enough sessions.

Stores look at 1,000 messages for a word: with so many there may be more.
"""
SHARING = 1_000
"""Sessions that are looked at for sharing one message, at most."""


@frozen
class Wanted:
    """Say which sessions are wanted."""

    projects: Collection[str] | None = None
    """None: all."""
    statuses: Collection[str] = ()
    """As `status_of` tells them."""
    name: str = ""
    """A part of the name or the id, in capitals or not."""
    begin: datetime | None = None
    """The earliest time of the last change."""

    def accepts(self, record: SessionRecord, text: str = "") -> bool:
        """Return whether a session of a wanted project is wanted; with a `text`, if it stands in its name or id."""
        return (
            (self.begin is None or record.updated >= self.begin)
            and (not self.statuses or status_of(record) in self.statuses)
            and is_named(record, fold_text(self.name))
            and is_named(record, fold_text(text))
        )


class Found(NamedTuple):
    """Hold the sessions that a search has found, the last changed first."""

    records: list[SessionRecord]
    unread: int = 0
    """How many sessions were not read for a text within a word, when some were not."""
    read: int = 0


def stored_statuses(statuses: Collection[str]) -> set[Any]:
    """Return the statuses in records of sessions with one of these statuses, which people see."""
    if {"interrupted", WAITING}.isdisjoint(statuses):
        return {*statuses}
    return {*statuses} - {WAITING} | {"interrupted", "running"}


def is_named(record: SessionRecord, text: str) -> bool:
    """Return whether a folded text is in the name or the id of a session."""
    return text in fold_text(record.name) or text in fold_text(record.session_id)


async def find_sessions(store: SessionStore, wanted: Wanted, limit: int, text: str = "") -> list[SessionRecord]:
    """Return the wanted sessions as they are, the last changed first; with a `text`, those named so."""
    found = [
        record for project in _places(wanted) for record in await _find_in_project(store, project, wanted, limit, text)
    ]
    return _newest(found, limit)


async def search_sessions(store: SessionStore, wanted: Wanted, limit: int, text: str) -> Found:
    """Return the wanted sessions with a text in a message, the name or the id.

    The index of the store finds words, and the words that a text is a part of. Messages are read where it does not, as
    many as `SEARCHED`.
    """
    folded = fold_text(text)
    known = {each.session_id: each for each in await find_sessions(store, wanted, limit, text)}
    is_complete = await _find_words(store, wanted, limit, folded, known)
    if is_complete or len(known) >= limit:
        return Found(_newest(known.values(), limit))
    return await _read_others(store, wanted, limit, folded, known)


async def _find_words(
    store: SessionStore, wanted: Wanted, limit: int, text: str, known: dict[str, SessionRecord]
) -> bool:
    """Add sessions that the index of the store knows; return whether there can be no others."""
    from amplifier_core.errors import AmplifierError
    from amplifier_core.store_views import MessageSearch, WordSearch
    from amplifier_core.text_search import has_parts, read_query

    words = read_query(text)
    if not words or not isinstance(store, MessageSearch):
        return False
    try:
        is_complete = await _find_indexed(store, wanted, limit, text, text, known)
        if len(known) >= limit or not isinstance(store, WordSearch):
            return False
        first, *rest = words
        if " " in first:  # a part of this is a part of several words
            return is_complete and has_parts(first)
        longer = await store.find_words(first, limit=EXPANDED)
        for word in longer:
            if word != first and len(known) < limit:
                is_complete &= await _find_indexed(store, wanted, limit, " ".join((word, *rest)), text, known)
    except AmplifierError:  # the messages are read instead
        return False
    return is_complete and len(longer) < EXPANDED


async def _read_others(
    store: SessionStore, wanted: Wanted, limit: int, text: str, known: dict[str, SessionRecord]
) -> Found:
    """Read messages of the last changed sessions, as many as `SEARCHED`."""
    left, read = SEARCHED, 0
    newest = await _list_wanted(store, wanted)
    for _, session_id, message_count in newest:
        left -= message_count if session_id not in known else 0
        if left < 0 and read:
            break
        read += 1
        if session_id not in known and await _has_text(store, session_id, None, text):
            known[session_id] = as_it_is(await store.get(session_id))
            if len(known) >= limit:
                return Found(_newest(known.values(), limit))
    return Found(_newest(known.values(), limit), len(newest) - read, read)


async def _list_wanted(store: SessionStore, wanted: Wanted) -> list[tuple[datetime, str, int]]:
    """Return the time, the id and the number of messages of each wanted session, the last changed first.

    There may be very many, and their records take ten times as much memory.
    """
    from ..sessions.store_views import read_in_steps

    found: list[tuple[datetime, str, int]] = []
    for project in _places(wanted):
        async for page in read_in_steps(store, project):
            records = [record for each in page if wanted.accepts(record := as_it_is(each))]
            found += [(each.updated, each.session_id, each.message_count) for each in records]
            if wanted.begin is not None and page[-1].updated < wanted.begin:
                break
    return sorted(found, reverse=True)


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
    statuses = stored_statuses(wanted.statuses)
    size = limit
    while True:  # a longer page, not the next one: a session that changes meanwhile would be in both or in none
        page = await store.session_page(project=project, statuses=statuses, text=text or wanted.name, limit=size)
        found = [record for each in page if wanted.accepts(record := as_it_is(each), text)]
        is_end = len(page) < size or (wanted.begin is not None and page[-1].updated < wanted.begin)
        if is_end or len(found) >= limit:
            return found[:limit]
        size *= 4


async def _find_indexed(
    store: MessageSearchStore, wanted: Wanted, limit: int, query: str, text: str, known: dict[str, SessionRecord]
) -> bool:
    """Add wanted sessions with a text in one of the messages of a query; return whether these are all of them."""
    is_complete = True
    for project in _places(wanted):
        looked_at, size = set[tuple[str, int]](), min(2 * limit, FOUND)
        while True:
            found = await store.search_messages(query, project=project, limit=size)
            for each in found.matches:
                place = each.session_id, each.position
                if place not in looked_at and (_is_quoted(each, text) or await _has_text(store, *place, text)):
                    is_complete &= await _add_sharing(store, wanted, *place, known)
                looked_at.add(place)
            if len(known) >= limit or len(found.matches) < size:
                break
            if size >= FOUND:  # the best come first: there are more unless the last lacks a word
                is_complete &= not await _has_words(store, found.matches[-1], query)
                break
            size = min(4 * size, FOUND)
        is_complete &= found.complete
    return is_complete


async def _add_sharing(
    store: MessageSearchStore, wanted: Wanted, session_id: str, position: int, known: dict[str, SessionRecord]
) -> bool:
    """Add the wanted sessions that have a message of a session; return whether these are all."""
    from amplifier_core.store_views import WordSearch

    sharing = [session_id]
    if isinstance(store, WordSearch):
        sharing = await store.find_sharing(session_id, position, limit=SHARING)
    for each in sharing:
        if each not in known and wanted.accepts(record := as_it_is(await store.get(each))):
            known[each] = record
    return len(sharing) < SHARING


async def _has_words(store: SessionStore, match: MessageMatch, query: str) -> bool:
    """Return whether a message has all the words of a query."""
    from amplifier_core.text_search import contains, fold_words, read_query

    from ..sessions.history import text_of

    [message] = await store.read(match.session_id, match.position, match.position + 1)
    folded = fold_words(text_of(message))
    return all(contains(folded, word) for word in read_query(query))


def _is_quoted(match: MessageMatch, text: str) -> bool:
    """Return whether the line that quotes a message has a folded text: then the message need not be read."""
    from amplifier_core.utils.secrets import HIDDEN

    return text.isalnum() and text not in fold_text(HIDDEN) and text in fold_text(match.snippet)


async def _has_text(store: SessionStore, session_id: str, position: int | None, text: str) -> bool:
    """Return whether a message of a session, or the one at a position, has a folded text."""
    from ..sessions.history import text_of

    start, stop = (0, None) if position is None else (position, position + 1)
    return any(text in fold_text(text_of(message)) for message in await store.read(session_id, start, stop))
