"""A search in the index of a store finds what a look at every message finds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_core.store_views import StoreViews
from amplifier_foundation.operations.session_search import Wanted, find_sessions, search_sessions
from amplifier_foundation.sessions.session_storage import SessionStorageAdapter
from amplifier_storage_sqlite.store import SqliteStore

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "amplifier.db", 5.0)
    yield store
    await store.close()


async def say(
    store: SqliteStore, session_id: str, *texts: str, fork_of: str | None = None, fork_at: int | None = None
) -> None:
    made = BEGIN + timedelta(seconds=len(await store.sessions()))
    fork = {"fork_of": fork_of, "fork_at": fork_at}
    record = await store.create(SessionRecord(session_id, project="/p", created=made, updated=made, **fork))
    await store.append(session_id, [{"role": "user", "content": text} for text in texts], at=record.message_count)


async def search(store: SqliteStore, text: str) -> set[str]:
    return {each.session_id for each in (await search_sessions(store, Wanted(), 100, text)).records}


async def test_a_search_finds_every_session_that_has_a_shared_message(store: SqliteStore) -> None:
    await say(store, "source", "a shared pearl", "a later stone")
    await say(store, "fork", "of its own", fork_of="source", fork_at=1)
    await say(store, "second", "deeper", fork_of="fork", fork_at=2)
    await say(store, "beside", "nothing", fork_of="source", fork_at=0)
    assert await search(store, "pearl") == {"source", "fork", "second"}
    assert await search(store, "ear") == {"source", "fork", "second"}
    assert await search(store, "stone") == {"source"}
    assert await search(store, "own") == {"fork", "second"}
    await store.delete("source")
    assert await search(store, "pearl") == {"fork", "second"}
    assert sorted(await store.find_sharing("second", 0)) == ["fork", "second"]
    assert await store.find_sharing("second", 2) == ["second"]


async def test_a_search_for_a_word_of_many_messages_finds_the_session_with_one(store: SqliteStore) -> None:
    await say(store, "old", "a needle")
    await say(store, "long", *(f"needle {number}" for number in range(1_200)))
    assert await search(store, "needle") == {"old", "long"}
    assert await search(store, "eedle") == {"old", "long"}


async def test_the_mark_of_a_hidden_secret_is_no_text_of_a_message(store: SqliteStore) -> None:
    await say(store, "accented", f"r\u00e9dacted: sk-ant-api03-{'aB3' * 30}")
    await say(store, "plain", "This was redacted.")
    assert await search(store, "redacted") == {"plain"}
    assert await search(store, "redact") == {"plain"}


@pytest.mark.parametrize("part", ["使用pyth", "使用", "用p", "thon3", "3版", "python3版"])
async def test_a_search_finds_a_text_over_signs_with_and_without_spaces(store: SqliteStore, part: str) -> None:
    await say(store, "mixed", "请使用Python3版本。")
    assert await search(store, part) == {"mixed"}


@pytest.mark.parametrize("name", ["strasse", "STRASSE", "straße", "rass", "traß"])
async def test_a_name_is_found_in_capitals_or_not_whatever_its_letters(store: SqliteStore, name: str) -> None:
    await store.create(SessionRecord("a", project="/p", name="Straße"))
    await store.create(SessionRecord("b", project="/p", name="Stras"))
    assert [each.session_id for each in await find_sessions(store, Wanted(name=name), 10)] == ["a"]


class Small:
    """A small storage, whose store shows no pages."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        self.stored[session_id] = transcript, metadata

    def load(self, session_id: str) -> Any:
        return self.stored[session_id]

    def exists(self, session_id: str) -> bool:
        return session_id in self.stored


@pytest.mark.parametrize(
    "written", ["Gr\u00fc\u00dfe \uff11\uff12.txt", "Gru\u0308\u00dfe 12.txt", "GR\u00dcSSE 12.TXT"]
)
@pytest.mark.parametrize("part", ["gr\u00fc\u00dfe 12", "gru\u0308\u00dfe \uff11\uff12", "\u00fc\u00df", "\uff12.t"])
async def test_a_letter_is_found_however_it_is_written(store: SqliteStore, written: str, part: str) -> None:
    await say(store, "said", f"write {written}", "done")
    await store.create(SessionRecord("named", project="/p", name=written))
    await store.create(SessionRecord("other", project="/p", name="Grusse 12"))
    assert await search(store, part) == {"said", "named"}
    assert [each.session_id for each in await find_sessions(store, Wanted(name=part), 10)] == ["named"]


async def test_a_letter_with_several_marks_is_found_by_its_capital(store: SqliteStore) -> None:
    name = "\u0390ota"
    await store.create(SessionRecord("named", project="/p", name=name))
    for part in (name, name.upper()):
        assert [each.session_id for each in await find_sessions(store, Wanted(name=part), 10)] == ["named"]


async def test_a_search_since_a_time_in_an_empty_store_without_pages_finds_nothing() -> None:
    store = SessionStorageAdapter(Small())
    assert not isinstance(store, StoreViews)
    assert (await search_sessions(store, Wanted(begin=BEGIN), 10, "needle")).records == []
    await store.create(SessionRecord("first", project="/p", created=BEGIN, updated=BEGIN))
    assert (await search_sessions(store, Wanted(["/q"], begin=BEGIN), 10, "needle")).records == []
