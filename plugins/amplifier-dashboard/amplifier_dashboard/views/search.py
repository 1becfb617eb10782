"""Search over everything: messages, sessions, background sessions, events, issues and notes."""

from __future__ import annotations

import json
import re
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup, escape

from amplifier_core.documents import DocumentSearch, DocumentStore
from amplifier_core.errors import StoreError
from amplifier_core.frozen import frozen
from amplifier_core.text_search import contains, cut_snippet, fold_words, read_query
from amplifier_core.utils.secrets import HIDDEN, redact_text, redactor
from amplifier_foundation.documents.safe_text import plain
from amplifier_foundation.operations.columns import shorten_home
from amplifier_foundation.sessions.lineage import word_event
from amplifier_foundation.sessions.presence import status_of
from amplifier_foundation.sessions.store_views import search_of, views_of

from ..declarations import read_queues
from ..links import background_path
from ..pages import Act, Page, View
from ..rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "search.html"
SHOWN = 20
"""Hits of a group."""
EVENTS, DOCUMENTS = 2_000, 500
"""The newest deliveries, and documents of a project, whose texts are looked at."""
FRESH = 5.0
"""Seconds for which hits are good: a change of the store seldom brings another one."""
LONGEST = 500
"""Characters of a query."""
_WORD = re.compile(r"[^\W_]+")
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
"""One encoder for all events: `json.dumps` makes one for each."""


@frozen
class Hit:
    """One thing that was found: its page, its title, the line around the words, and what is around it."""

    path: str
    title: str
    snippet: Markup
    about: str = ""


@frozen
class Group:
    """The hits of one kind; `note` says what was not looked at."""

    name: str
    hits: Sequence[Hit]
    note: str = ""


async def search(desk: Desk, place: Place) -> Page:
    """Return what was found for `?q=`."""
    query = place.query.get("q", "").strip()[:LONGEST]
    words = read_query(query)
    groups = await _find_fresh(desk, query, words) if words else []
    values = {
        "query": query,
        "groups": [each for each in groups if each.hits],
        "notes": [g.note for g in groups if g.note],
    }
    title = f"Search: {query}" if query else "Search"
    return Page(title, TEMPLATE, {"found": render_block(TEMPLATE, "found", values)}, facts={"search_text": query})


async def _find_fresh(desk: Desk, query: str, words: list[str]) -> list[Group]:
    kept: dict[str, tuple[float, list[Group]]] = desk.kept.setdefault("search", {})
    now = monotonic()
    for old in [each for each, (time, _) in kept.items() if now - time > FRESH]:
        del kept[old]
    if query not in kept:
        found = [
            await find_messages(desk, query, words),
            await find_sessions(desk, query, words),
            await find_queues(desk, words),
            await find_deliveries(desk, words),
            *await find_documents(desk, query, words),
        ]
        kept[query] = (monotonic(), found)
    return kept[query][1]


def mark_words(text: str, words: Sequence[str]) -> Markup:
    """Return a text without secrets whose words of a query are marked."""
    text, made, end = plain(redact_text(text)), Markup(), 0
    for each in _WORD.finditer(text):
        if any(contains(fold_words(each[0]), word.partition(" ")[0]) for word in words):
            made += escape(text[end : each.start()]) + Markup("<mark>{}</mark>").format(each[0])
            end = each.end()
    return made + escape(text[end:])


def _has_all(text: str, words: Iterable[str]) -> bool:
    folded = fold_words(text)
    return all(contains(folded, word) for word in words)


def _may_have(text: str, words: Iterable[str]) -> bool:
    """Return False if the text cannot have all words, whatever is hidden in it; most texts need no further look."""
    small = text.lower()
    return not text.isascii() or all(word in small for word in words)


async def find_messages(desk: Desk, query: str, words: Sequence[str]) -> Group:
    """Return the messages with any of the words, the best first."""
    found = await search_of(desk.store).search_messages(query, limit=SHOWN)
    hits = []
    for each in found.matches:
        number = each.position + 1
        path = f"/sessions/{quote(each.session_id)}?to=m{number}#m{number}"
        about = f"{each.role} in {shorten_home(each.project)}"
        hits.append(Hit(path, f"{each.session_id} m{number}", mark_words(each.snippet, words), about))
    note = "" if found.complete else "Older messages are not indexed yet: look again soon."
    return Group("Messages", hits, note)


async def find_sessions(desk: Desk, query: str, words: Sequence[str]) -> Group:
    """Return the sessions with the query in their name, id or bundle."""
    page = await views_of(desk.store).session_page(text=query, limit=SHOWN)
    hits = [
        Hit(
            f"/sessions/{quote(each.session_id)}",
            each.session_id,
            mark_words(f"{each.name} ({each.bundle})", words),
            f"{status_of(each)} in {shorten_home(each.project)}",
        )
        for each in page
    ]
    return Group("Sessions", hits)


async def find_queues(desk: Desk, words: Sequence[str]) -> Group:
    """Return the background sessions with all words in their project or queue."""
    found = [each for each in await read_queues(desk) if _has_all(" ".join(each), words)][:SHOWN]
    hits = [
        Hit(background_path(project, queue), queue, mark_words(queue, words), shorten_home(project))
        for project, queue in found
    ]
    return Group("Background sessions", hits)


async def find_deliveries(desk: Desk, words: Sequence[str]) -> Group:
    """Return the newest deliveries with all words in their event."""
    page = await views_of(desk.store).delivery_page(limit=EVENTS)
    hits, hide = list[Hit](), redactor()  # one look at the environment for all of them
    for each in page:
        title, data = word_event(each.event), _encode(dict(each.event.data))
        if not _may_have(f"{each.delivery_id} {title} {HIDDEN} {data}", words):
            continue
        title = hide(title)
        if _has_all(f"{each.delivery_id} {title} {data}", words):
            snippet = mark_words(cut_snippet(redact_text(f"{title} {data}"), words), words)
            hits.append(Hit(f"/deliveries/{each.delivery_id}", title, snippet, each.queue))
        if len(hits) == SHOWN:
            break
    return Group("Events", hits, f"Of events, the newest {EVENTS:,} were looked at." if len(page) == EVENTS else "")


async def find_documents(desk: Desk, query: str, words: Sequence[str]) -> list[Group]:
    """Return the issues and the notes of all projects with the words."""
    store = desk.store
    projects = sorted({desk.project, *(project for project, _ in await read_queues(desk))})
    issues, notes = list[Hit](), list[Hit]()
    for project in projects:
        try:
            if isinstance(store, DocumentStore):
                for each in await store.documents(project, "issues", newest=True, limit=DOCUMENTS):
                    text = f"{each.data.get('title', '')} {each.data.get('description', '')}"
                    if _has_all(f"{each.key} {text}", words):
                        issues.append(_hit_of(project, each.key, cut_snippet(redact_text(text), words), words))
            if isinstance(store, DocumentSearch):
                for match in await store.search_documents(project, "memory.notes", query, limit=SHOWN):
                    notes.append(_hit_of(project, match.document.key, match.snippet, words))
        except StoreError:  # a store that keeps no documents
            break
    return [Group("Issues", issues[:SHOWN]), Group("Notes", notes[:SHOWN])]


def _hit_of(project: str, key: str, text: str, words: Sequence[str]) -> Hit:
    return Hit("", key, mark_words(text, words), shorten_home(project))


VIEWS = [View("/search", search)]
ACTS: list[Act] = []
