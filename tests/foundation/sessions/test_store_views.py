"""The views of a store that has none of its own: read from it, they keep the same contract."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.session_queries import SessionQueries
from amplifier_core.storage import SessionRecord
from amplifier_core.store_views import MessageSearch, StoreViews
from amplifier_core.testing import MemoryStore
from amplifier_core.testing.store_checks import MESSAGE_CHECKS, QUERY_CHECKS, VIEW_CHECKS
from amplifier_foundation.sessions import store_views
from amplifier_foundation.sessions.store_views import queries_of, search_of, views_of
from amplifier_storage_jsonl import open_jsonl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VIEWS = ("watch_commits", "delivery_page", "session_page", "delivery_rates")
SEARCH = ("search_messages", "index_messages")


class Plain(MemoryStore):
    """A store without views."""


for name in VIEWS + SEARCH:
    setattr(Plain, name, None)


@pytest.mark.parametrize("check", VIEW_CHECKS, ids=lambda check: check.__name__)
async def test_views_that_read_a_store_keep_the_contract(
    check: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_views, "LOOK_EVERY", 0.01)
    store = Plain()
    assert not isinstance(store, StoreViews)
    views = views_of(store)
    for name in VIEWS:
        setattr(store, name, getattr(views, name))
    await check(store)


@pytest.mark.parametrize("check", QUERY_CHECKS, ids=lambda check: check.__name__)
async def test_queries_that_read_a_store_keep_the_contract(check: Callable[[Any], Any]) -> None:
    store: Any = Plain()
    assert not isinstance(store, SessionQueries)
    queries = queries_of(store)
    store.sessions_below, store.sessions_with = queries.sessions_below, queries.sessions_with
    await check(store)


FEWER = [check for check in MESSAGE_CHECKS if "shared_message" not in check.__name__]  # type: ignore[attr-defined]


@pytest.mark.parametrize("check", FEWER, ids=lambda check: check.__name__)
async def test_a_search_that_reads_a_store_keeps_the_contract(check: Callable[[Any], Any]) -> None:
    store = Plain()
    assert not isinstance(store, MessageSearch)
    search = search_of(store)
    for name in SEARCH:
        setattr(store, name, getattr(search, name))
    await check(store)


async def test_a_search_that_reads_finds_a_shared_message_with_its_source() -> None:
    store = Plain()
    await store.create(SessionRecord("a"))
    await store.append("a", [{"role": "user", "content": "shared"}], at=0)
    await store.create(SessionRecord("fork", fork_of="a"))
    found = await search_of(store).search_messages("shared")
    assert [(each.session_id, each.position) for each in found.matches] == [("a", 0)]
    await store.delete("a")
    found = await search_of(store).search_messages("shared")
    assert [(each.session_id, each.position) for each in found.matches] == [("fork", 0)]


async def test_a_search_that_reads_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_views, "SEARCHED", 3)
    store = Plain()
    for name in ("older", "newer"):
        await store.create(SessionRecord(name))
        await store.append(name, [{"role": "user", "content": "word"}] * 2, at=0)
    found = await search_of(store).search_messages("word")
    assert ([each.session_id for each in found.matches], found.complete) == (["newer", "newer"], False)


async def test_a_store_with_views_shows_its_own() -> None:
    store = MemoryStore()
    assert views_of(store) is store


async def test_a_store_without_an_inbox_shows_its_sessions(tmp_path: Path) -> None:
    store = open_jsonl({"path": tmp_path})
    await store.create(SessionRecord("one", name="Näht"))
    await store.create(SessionRecord("two"))
    views = views_of(store)
    assert [each.session_id for each in await views.session_page(text="NÄHT")] == ["one"]
    assert await views.delivery_page() == []
    await store.close()


async def test_a_listener_is_called_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_views, "LOOK_EVERY", 0.001)
    heard = threading.Semaphore(0)
    end = views_of(Plain()).watch_commits(heard.release)
    assert heard.acquire(timeout=120)
    assert heard.acquire(timeout=120)
    end()
    end()
