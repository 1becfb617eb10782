"""The index of messages: made when somebody searches, behind a limit of time, and without the words of what is gone."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_core.store_views import MessageSearch
from amplifier_storage_sqlite import administer_sqlite, message_search, open_sqlite, view_store

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Unpack

INDEXED = "SELECT count(*) FROM message_index WHERE message_index MATCH ?"


async def _say(store: SqliteStore, session_id: str, *texts: str) -> None:
    if not await store.find(session_id):
        await store.create(SessionRecord(session_id, project="/p"))
    at = (await store.get(session_id)).message_count
    await store.append(session_id, [{"role": "user", "content": text} for text in texts], at=at)


async def _find(store: SqliteStore, query: str, **chosen: Any) -> list[tuple[str, int]]:
    return [(each.session_id, each.position) for each in (await store.search_messages(query, **chosen)).matches]


def _ask(store: SqliteStore, query: str, *values: object) -> Any:
    with closing(sqlite3.connect(store.path)) as db:
        return db.execute(query, values).fetchone()[0]


async def test_a_message_is_indexed_when_somebody_searches(store: SqliteStore) -> None:
    await _say(store, "a", "first")
    assert _ask(store, INDEXED, "first") == 0
    assert await _find(store, "first") == [("a", 0)]
    await _say(store, "a", "second")
    assert (_ask(store, INDEXED, "first"), _ask(store, INDEXED, "second")) == (1, 0)
    assert await _find(store, "second") == [("a", 1)]
    assert _ask(store, "SELECT count(*) FROM message_spans") == 1


async def test_the_words_of_deleted_messages_leave_the_index(store: SqliteStore) -> None:
    for name in ("a", "b"):
        await _say(store, name, f"secretive {name}", "kept")
    await store.create(SessionRecord("fork", fork_of="a", fork_at=1, project="/p"))
    assert len(await _find(store, "secretive kept")) == 4
    await store.update("b", project="/elsewhere")
    await store.delete("b")
    assert (_ask(store, INDEXED, "secretive"), _ask(store, INDEXED, "kept")) == (1, 1)
    await store.delete("a")
    assert (_ask(store, INDEXED, "secretive"), _ask(store, INDEXED, "kept")) == (1, 0)
    await store.delete("fork")
    assert _ask(store, INDEXED, "secretive") == 0
    assert _ask(store, "SELECT count(*) FROM message_projects") == 0


async def test_a_search_ends_after_a_while_and_says_that_older_messages_are_left(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_store, "INDEXED_FOR", 0.0)
    monkeypatch.setattr(view_store, "STEP", 2)
    await _say(store, "a", *("word" for _ in range(5)))
    found = await store.search_messages("word")
    assert ([each.position for each in found.matches], found.complete) == ([4, 3], False)
    await _say(store, "a", "word")
    found = await store.search_messages("word")
    assert ([each.position for each in found.matches], found.complete) == ([5, 4, 3], False)
    assert await store.index_messages(1) == 1
    found = await store.search_messages("word")
    assert ([each.position for each in found.matches], found.complete) == ([5, 4, 3, 2, 1, 0], True)
    assert await store.index_messages() == 0


async def test_what_changes_between_reading_and_indexing_is_indexed_later(store: SqliteStore) -> None:
    await _say(store, "a", "one")
    await _say(store, "b", "two")
    planned = store._reader.run(lambda db: message_search.plan(db, 10))
    assert planned is not None
    await store.delete("b")
    await _say(store, "c", "three")  # SQLite gives the rowid out again
    assert await store._writer.run(lambda db: message_search.carry_out(db, planned)) == 0
    assert await _find(store, "one two three") == [("c", 0), ("a", 0)]
    assert await store._writer.run(lambda db: message_search.carry_out(db, planned)) == 0


async def test_two_stores_index_one_file(store: SqliteStore) -> None:
    other = open_sqlite({"path": store.path})
    await _say(store, "a", *(f"word {number}" for number in range(50)))
    await asyncio.gather(*(each.index_messages(7) for each in (store, other) for _ in range(20)))
    for each in (store, other):
        assert len(await _find(each, "word", limit=100)) == 50
    assert _ask(store, INDEXED, "word") == 50
    await other.close()


async def test_a_damaged_message_is_not_found_and_harms_no_search(store: SqliteStore) -> None:
    await _say(store, "a", "word one", "word two", "word three")
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("""UPDATE messages SET body = '{"role' WHERE position = 0""")
    assert await _find(store, "word") == [("a", 2), ("a", 1)]
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE messages SET body = replace(body, 'two', 'too') WHERE position = 1")
    assert await _find(store, "word") == [("a", 2)]
    await store.delete("a")
    await _say(store, "b", "another", "text", "word")
    assert await _find(store, "word") == [("b", 2)]


async def test_a_damaged_index_is_made_anew(store: SqliteStore) -> None:
    await _say(store, "a", *(f"word{number}" for number in range(300)))
    assert await _find(store, "word7", limit=1)
    await store.close()
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("DELETE FROM message_index_data WHERE id > 10")
    again = open_sqlite({"path": store.path})
    assert await _find(again, "word299") == [("a", 299)]
    await again.close()


async def test_a_search_goes_on_after_compaction_backup_and_salvage(store: SqliteStore, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        await _say(store, name, f"word {name}")
    assert len(await _find(store, "word")) == 3
    await store.delete("b")
    await store.close()
    administration = administer_sqlite({"path": store.path})
    administration.backup(tmp_path / "backup.db")
    assert administration.check() == []
    salvaged = administration.salvage(tmp_path / "salvaged.db")
    assert salvaged.lost == ()
    administration.compact(wait=True)
    for path in (store.path, tmp_path / "backup.db", tmp_path / "salvaged.db"):
        opened = open_sqlite({"path": path})
        assert await _find(opened, "word") == [("c", 0), ("a", 0)]
        await opened.close()


async def test_a_turn_pays_nothing_for_the_index(store: SqliteStore) -> None:
    store._writer._pace.note(60)  # all in the thread: to write elsewhere than before has statements of its own
    await _say(store, "a", "word")
    taken = list[int]()
    for _ in range(2):
        numbers = itertools.count()
        store._writer._db.set_progress_handler(lambda numbers=numbers: 0 * next(numbers), 1)
        await _say(store, "a", "another")
        store._writer._db.set_progress_handler(None, 1)
        taken.append(next(numbers))
        await store.index_messages()
    assert taken[0] == taken[1]


@pytest.fixture
def released(unpack: Unpack) -> Path:
    """A store of schema 13: a session with a fork."""
    return unpack(13)


async def test_the_messages_of_a_store_of_before_are_found(released: Path) -> None:
    store = open_sqlite({"path": released})
    assert isinstance(store, MessageSearch)
    assert await _find(store, "parser") == [("parent", 0)]
    assert await _find(store, "answer grösse") == [("fork", 1), ("parent", 1)]
    await store.close()


async def test_a_sqlite_without_fts5_says_so(store: SqliteStore) -> None:
    await _say(store, "a", "word")
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("DROP TABLE message_index")
    with pytest.raises(StoreUnavailable, match="has no FTS5"):
        await store.search_messages("word")
    await store.delete("a")


async def test_the_words_that_a_text_is_a_part_of_are_those_of_stored_messages(store: SqliteStore) -> None:
    await _say(store, "a", "The Parser fails", "compare Größe", "sparse")
    assert await store.find_words("par") == []
    assert await _find(store, "parser") == [("a", 0)]
    assert await store.find_words("par") == ["compare", "parser", "sparse"]
    assert await store.find_words("par", limit=2) == ["compare", "parser"]
    assert await store.find_words("ross") == ["grosse"]
    assert await store.find_words("0") == []
    await store.create(SessionRecord("b"))
    await store.delete("a")
    assert await store.find_words("par") == []


async def test_a_search_on_a_full_disk_finds_what_is_indexed(store: SqliteStore) -> None:
    await _say(store, "a", "word")
    assert await _find(store, "word") == [("a", 0)]
    await _say(store, "b", *(f"word {number} of a long text" for number in range(900)))
    pages = _ask(store, "PRAGMA page_count")
    store._writer._db.execute(f"PRAGMA max_page_count = {pages}")
    found = await store.search_messages("word", limit=5)
    assert ([each.session_id for each in found.matches], found.complete) == (["a"], False)
    assert len(await store.find_words("wor")) == 1
