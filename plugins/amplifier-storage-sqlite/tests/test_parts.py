"""Parts of names and of words are found by their trigrams: what a search finds is what a look at every row finds."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_core.text_search import fold_words
from amplifier_storage_sqlite import administer_sqlite, message_words, open_sqlite, schema, session_texts, view_store
from amplifier_storage_sqlite.session_texts import MOST_LATE

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Steps, Unpack

pytestmark = pytest.mark.slow

NAMES = ("Größe", "STRASSE", "straße", 'a "quoted" name', "nul\0inside", "two\nlines", "全文検索", "lone \udce9", "")


async def _fill(store: SqliteStore, numbers: range) -> None:
    """Make sessions of two projects, a third of them failed, with some letters in their names."""
    for number in numbers:
        name, project = f"{NAMES[number % len(NAMES)]} {number}", f"/p{number % 2}"
        status: Any = "idle" if number % 3 else "failed"
        await store.create(SessionRecord(f"s{number}", name=name, project=project, bundle="coder", status=status))


async def _find(store: SqliteStore, text: str, **chosen: Any) -> list[str]:
    return [each.session_id for each in await store.session_page(text=text, limit=1000, **chosen)]


async def _check_parts(store: SqliteStore, *more: str) -> None:
    """Compare what is found with a look at every session, for parts of all names and for other texts."""
    every = await store.sessions()
    chance = random.Random(7)
    texts = ["zebra", "s1", "", "coder", *more]
    for record in chance.sample(every, min(len(every), 20)):
        whole = f"{record.name}\n{record.session_id}\n{record.bundle}"
        start = chance.randrange(len(whole))
        texts += [record.name, record.session_id, whole[start : start + chance.randrange(1, 12)]]
    for text in texts:
        folded = text.casefold()
        wanted = [e for e in every if folded in f"{e.name}\n{e.session_id}\n{e.bundle}".casefold()]
        assert await _find(store, text) == [each.session_id for each in wanted], text
        of_project = [each.session_id for each in wanted if each.project == "/p1" and each.status == "failed"]
        assert await _find(store, text, project="/p1", statuses=("failed",)) == of_project, text


def _ask(store: SqliteStore, query: str, *values: object) -> Any:
    with closing(sqlite3.connect(store.path)) as db:
        return db.execute(query, values).fetchone()[0]


INDEXED = "SELECT count(*) FROM session_texts WHERE NOT marked"
WORDS = "SELECT count(*) FROM message_words"
GRAMS = "SELECT count(*) FROM session_index WHERE session_index MATCH ?"


async def test_a_part_of_a_name_is_found_whether_it_is_indexed_or_not(store: SqliteStore) -> None:
    await _fill(store, range(MOST_LATE))
    await _check_parts(store)
    assert _ask(store, INDEXED) == 0, "some new sessions must be compared one by one"
    await _fill(store, range(MOST_LATE, 300))
    await _check_parts(store)
    assert _ask(store, INDEXED) == 300
    await _fill(store, range(300, 310))
    await _check_parts(store)
    assert _ask(store, INDEXED) == 300


async def test_another_name_is_found_and_the_old_one_is_not(store: SqliteStore) -> None:
    await _fill(store, range(100))
    assert await _find(store, "quoted")
    await store.update("s7", name="Renamed zebra")
    await store.update("s8", status="failed")
    assert _ask(store, INDEXED) == 99, "only the text of a session with another name is made anew"
    assert await _find(store, "zebra") == ["s7"]
    await _check_parts(store, "Renamed zebra")
    for number in range(MOST_LATE + 1):
        await store.update(f"s{number}", name=f"Another {number}")
    await _check_parts(store, "Another")
    assert _ask(store, INDEXED) == 100
    assert (_ask(store, GRAMS, '"zeb"'), _ask(store, GRAMS, '"her"')) == (0, MOST_LATE + 1)


async def test_the_name_of_a_deleted_session_leaves_the_index(store: SqliteStore) -> None:
    await _fill(store, range(100))
    assert await _find(store, "coder")
    for number in (99, 98, 20):
        await store.delete(f"s{number}")
    assert (_ask(store, INDEXED), _ask(store, GRAMS, '"cod"')) == (97, 97)
    await store.create(SessionRecord("new", name="In the row of another", project="/p1"))
    await _check_parts(store, "in the row")
    assert await _find(store, "row of") == ["new"]


async def test_a_process_of_before_renames_and_deletes(store: SqliteStore, path: Path) -> None:
    """It knows nothing of the index; the triggers of the database run in it too."""
    await _fill(store, range(100))
    assert await _find(store, "coder")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM sessions WHERE session_id IN ('s98', 's99', 's30')")
    await store.update("s5", name="zebra")
    for name in ("first", "second"):
        await store.create(SessionRecord(name, name=f"The {name} one", project="/p1"))
    await _check_parts(store, "the second one", "zebra")


async def test_a_text_of_many_sessions_is_found_by_a_walk(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_texts, "MOST_FOUND", 10)
    await _fill(store, range(200))
    await _check_parts(store)


async def test_an_index_that_is_not_complete_finds_the_same(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_store, "INDEXED_FOR", 0.0)
    monkeypatch.setattr(session_texts, "STEP", 50)
    await _fill(store, range(200))
    await _check_parts(store)
    assert _ask(store, INDEXED) == 0
    await store._writer.run(session_texts.index_texts)
    await _check_parts(store)
    assert _ask(store, INDEXED) == 50


async def test_pages_of_a_part_follow_each_other(store: SqliteStore) -> None:
    await _fill(store, range(150))
    wanted = await _find(store, "straß")
    shown: list[str] = []
    while page := await store.session_page(text="straß", before=shown[-1] if shown else None, limit=7):
        shown += [each.session_id for each in page]
    assert (shown, len(shown)) == (wanted, 34)


def test_a_part_is_found_without_an_event_loop(path: Path) -> None:
    import asyncio

    async def fill() -> None:
        store = open_sqlite({"path": path})
        await _fill(store, range(100))
        await store.close()

    asyncio.run(fill())
    store = open_sqlite({"path": path})
    page = store.session_page(text="größe 9", limit=5)
    with pytest.raises(StopIteration) as ended:
        page.send(None)
    assert [each.session_id for each in ended.value.value] == ["s99", "s90", "s9"]
    with pytest.raises(StopIteration):
        store.close().send(None)


async def test_a_rare_part_costs_little_more_among_many_sessions(store: SqliteStore, steps: Steps) -> None:
    taken = []
    for count in (500, 5_000):
        await store._writer.run(partial(_insert, count=count))
        assert await _find(store, "needle") == ["s7"]
        taken.append(steps(lambda db: _page(db, "needle")))
    assert taken[1] < 3 * taken[0], taken  # the index has some more segments


def _insert(db: sqlite3.Connection, count: int) -> None:
    from amplifier_storage_sqlite.rows import SESSIONS
    from amplifier_storage_sqlite.sessions import create

    [(first,)] = db.execute("SELECT count(*) FROM sessions")
    for number in range(first, count):
        name = "A needle" if number == 7 else f"Hay {number}"
        create(db, SESSIONS.row(SessionRecord(f"s{number}", name=name, project="/p")))


def _page(db: sqlite3.Connection, text: str) -> None:
    from amplifier_storage_sqlite import views

    views.session_page(db, None, (), text, None, 10)


async def test_a_new_session_and_a_turn_pay_nothing_for_the_index(store: SqliteStore) -> None:
    changes = list[int]()
    for name in ("a", "b"):
        before = store._writer._db.total_changes
        await store.create(SessionRecord(name))
        await store.append(name, [{"role": "user", "content": "Hello"}], at=0)
        await store.update(name, status="completed")
        changes.append(store._writer._db.total_changes - before)
        await store._writer.run(session_texts.index_texts)
    assert changes[0] == changes[1]


async def _say(store: SqliteStore, session_id: str, *texts: str) -> None:
    if not await store.find(session_id):
        await store.create(SessionRecord(session_id, project="/p"))
    at = (await store.get(session_id)).message_count
    await store.append(session_id, [{"role": "user", "content": text} for text in texts], at=at)


async def _check_words(store: SqliteStore, *texts: str) -> None:
    """Compare the words with a part with those of texts, for every part of each."""
    words = {word for text in texts for word in fold_words(text).split()}
    for part in {word[start:end] for word in words for start in range(len(word)) for end in range(start + 1, 99)}:
        assert await store.find_words(part) == sorted(word for word in words if part in word), part


TEXTS = ("The Parser fails", "compare Größe", "sparse 全文検索", "a1b2c3d4", "parse max_depth=5")


async def test_the_words_with_a_part_are_those_of_indexed_messages(store: SqliteStore) -> None:
    for number, text in enumerate(TEXTS):
        await _say(store, f"s{number}", text)
        assert (await store.search_messages("anything")).complete
        await _check_words(store, *TEXTS[: number + 1])
    for number in range(3):
        await store.delete(f"s{number}")
        await _check_words(store, *TEXTS[number + 1 :])
    await _say(store, "s4", "another")
    assert await store.index_messages(1) == 1
    await _check_words(store, *TEXTS[3:], "another")
    assert _ask(store, WORDS) == len({word for text in TEXTS[3:] for word in fold_words(text).split()}) + 1


async def test_the_words_of_many_deleted_messages_go_with_the_next_search(store: SqliteStore) -> None:
    await _say(store, "kept", "parser")
    await _say(store, "gone", *(f"parser spar{number}" for number in range(message_words.MOST_LATE + 20)))
    assert (await store.search_messages("parser")).complete
    assert len(await store.find_words("spar")) == message_words.MOST_LATE + 20
    await store.delete("gone")
    assert await store.find_words("par") == ["parser"]
    assert _ask(store, WORDS) <= message_words.MOST_LATE + 1
    await store.delete("kept")
    assert await store.find_words("par") == []


async def test_a_word_stays_listed_while_a_message_has_it(store: SqliteStore) -> None:
    for name in ("first", "second", "third"):
        await _say(store, name, f"parser {name}")
        assert (await store.search_messages("parser")).complete
    for name in ("first", "third"):
        await store.delete(name)
        await store._writer.run(lambda db: message_words.forget_words(db, 10))
        assert await store.find_words("par") == ["parser"]
    await store.delete("second")
    await store._writer.run(lambda db: message_words.forget_words(db, 10))
    assert _ask(store, WORDS) == 0


async def test_a_word_that_no_message_has_is_not_found(store: SqliteStore) -> None:
    await _say(store, "a", "parser")
    assert (await store.search_messages("parser")).complete
    await store._writer.run(lambda db: message_words.add_words(db, [(1, "sparrow")]))
    assert await store.find_words("par") == ["parser"]


async def test_words_indexed_by_a_process_of_before_are_listed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_words, "STEP", 3)
    await _say(store, "a", *TEXTS[:2])
    assert (await store.search_messages("parser")).complete
    await _say(store, "b", *TEXTS[2:])
    with monkeypatch.context() as before:
        before.setattr(message_words, "add_words", lambda db, texts: None)
        assert (await store.search_messages("parser")).complete
    with closing(sqlite3.connect(store.path)) as db, db:  # as it writes the range
        db.execute("UPDATE message_spans SET listed = 0")
    monkeypatch.setattr(view_store, "INDEXED_FOR", 0.0)
    await _check_words(store, *TEXTS)
    assert await store._writer.run(message_words.list_words) == 3
    await _check_words(store, *TEXTS)
    await _say(store, "c", "apparent")
    assert (await store.search_messages("parser")).complete
    monkeypatch.setattr(view_store, "INDEXED_FOR", 10.0)
    await _check_words(store, *TEXTS, "apparent")
    assert _ask(store, "SELECT group_concat(listed) FROM message_spans") == str(message_words.LISTED)
    assert _ask(store, "SELECT count(*) FROM word_cursor") == 0


async def test_a_range_of_a_process_of_before_is_listed_after_the_one_that_is_listed_now(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_words, "STEP", 2)
    monkeypatch.setattr(message_words, "add_words", lambda db, texts: None)
    await _say(store, "a", *TEXTS)
    assert (await store.search_messages("parser")).complete
    monkeypatch.undo()
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE message_spans SET listed = 0")
    await store._writer.run(message_words.list_words)
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE message_spans SET listed = 0")
    await _check_words(store, *TEXTS)


async def test_an_index_of_parts_is_made_anew(store: SqliteStore) -> None:
    await _fill(store, range(100))
    await _say(store, "s1", *TEXTS)
    assert await _find(store, "coder")
    assert (await store.search_messages("parser")).complete
    await store.close()
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("DELETE FROM session_index_data WHERE id > 10")
        db.execute("DELETE FROM word_index_data WHERE id > 10")
    again = open_sqlite({"path": store.path})
    await _check_parts(again)
    assert (await again.search_messages("parser")).complete
    await _check_words(again, *TEXTS)
    await again.close()
    assert administer_sqlite({"path": store.path}).check() == []


async def test_a_search_for_parts_goes_on_after_compaction_backup_and_salvage(
    store: SqliteStore, tmp_path: Path
) -> None:
    await _fill(store, range(100))
    await _say(store, "s1", *TEXTS)
    assert await _find(store, "coder")
    assert (await store.search_messages("parser")).complete
    await store.delete("s50")
    await store.close()
    administration = administer_sqlite({"path": store.path})
    administration.backup(tmp_path / "backup.db")
    administration.salvage(tmp_path / "salvaged.db")
    administration.compact(wait=True)
    for path in (store.path, tmp_path / "backup.db", tmp_path / "salvaged.db"):
        opened = open_sqlite({"path": path})
        await _check_parts(opened)
        assert (await opened.search_messages("parser")).complete
        await _check_words(opened, *TEXTS)
        await opened.close()


async def test_a_sqlite_without_fts5_finds_names(store: SqliteStore) -> None:
    await _fill(store, range(100))
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("DROP TABLE session_index")
        db.execute("DROP TABLE word_index")
    await _check_parts(store)
    await store.delete("s7")
    await _say(store, "s1", "parser")
    assert (await store.search_messages("parser")).complete
    assert await store.find_words("ars") == ["parser"]


@pytest.fixture
def released(unpack: Unpack) -> Path:
    """A store of schema 17: four sessions, one of them a fork, one whose message is not indexed."""
    return unpack(17)


async def test_the_names_and_words_of_a_store_of_before_are_found(released: Path) -> None:
    with closing(sqlite3.connect(released)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (17,)
    store = open_sqlite({"path": released})
    assert await _find(store, "größe OF") == ["first"]
    assert await _find(store, "coder") == ["later", "second"]
    found = ["apparent", "compare", "parser", "sparse"]
    assert await store.find_words("par") == found
    assert (await store.search_messages("parser")).complete
    assert await store.find_words("par") == sorted([*found, "parting"])
    await store.delete("second")
    assert await store.find_words("par") == ["compare", "parser", "parting", "sparse"]
    await store.close()
    assert administer_sqlite({"path": released}).check() == []


async def test_names_that_an_earlier_store_has_indexed_as_they_were_written_are_found(released: Path) -> None:
    with closing(sqlite3.connect(released)) as db, db:
        schema.upgrade(db, 17, 18)
        db.execute("UPDATE sessions SET name = 'Gro\u0308\u00dfe \uff11\uff12' WHERE session_id = 'first'")
        db.execute("INSERT INTO session_texts (id, text) SELECT id, lower(name) FROM sessions")
        db.execute("INSERT INTO session_index (rowid, text) SELECT id, text FROM session_texts")
    store = open_sqlite({"path": released})
    assert await _find(store, "GR\u00d6\u00dfE 12") == ["first"]
    await store.close()
