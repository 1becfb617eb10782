"""Change documents from several processes, damage them, and compare the store with the one in memory."""

from __future__ import annotations

import gzip
import random
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import DocumentConflict, StoreDamaged, StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.testing import MemoryStore
from amplifier_storage_sqlite import open_sqlite
from amplifier_storage_sqlite.administration import SqliteAdministration
from amplifier_storage_sqlite.searching import rebuild_index

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start, Steps

COUNT_UP = """
from amplifier_core.documents import DocumentChange
from amplifier_core.errors import DocumentConflict
from amplifier_core.events import SessionEvent

async def main():
    store = open_sqlite({"path": sys.argv[1]})
    say("ready")
    sys.stdin.readline()
    for _ in range(20):
        while True:
            counter = await store.document("/p", "counters", "n")
            change = DocumentChange("/p", "counters", "n", {"n": counter.data["n"] + 1}, counter.version)
            try:
                await store.write_documents([change], emits=[SessionEvent("counted", {"n": counter.data["n"] + 1})])
                break
            except DocumentConflict:
                pass
    await store.close()

asyncio.run(main())
"""


def _change(key: str, data: dict[str, Any] | None, version: int = 0) -> DocumentChange:
    return DocumentChange("/p", "issues", key, data, version)


async def test_no_change_of_several_processes_is_lost(path: Path, store: SqliteStore, start: Start) -> None:
    await store.write_documents([DocumentChange("/p", "counters", "n", {"n": 0})])
    processes = [start(COUNT_UP, path) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait() for process in processes] == [0, 0, 0]
    counter = await store.document("/p", "counters", "n")
    assert counter is not None
    assert (counter.data, counter.version) == ({"n": 60}, 61)
    assert [event.data["n"] for event in await store.events()] == list(range(1, 61))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE documents SET data = replace(data, 'open', 'shut')",
        "UPDATE documents SET data = '{'",
        "UPDATE documents SET version = 2",
        "UPDATE documents SET updated = updated + 1",
    ],
)
async def test_a_document_that_is_not_what_was_written_is_damage(change: str, path: Path, store: SqliteStore) -> None:
    await store.write_documents([_change("1", {"state": "open"}), _change("2", {"state": "open"})])
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"{change} WHERE key = CAST('1' AS BLOB)")
    with pytest.raises(StoreDamaged, match=r"store\.db: is damaged \(document '1' of 'issues' differs"):
        await store.document("/p", "issues", "1")
    with pytest.raises(StoreDamaged):
        await store.documents("/p", "issues")
    kept = await store.document("/p", "issues", "2")
    assert kept is not None
    assert kept.data == {"state": "open"}


async def test_a_search_in_damaged_data_is_damage(path: Path, store: SqliteStore) -> None:
    await store.write_documents([_change("1", {"state": "open"})])
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE documents SET data = '{'")
    with pytest.raises(StoreDamaged, match="is damaged"):
        await store.documents("/p", "issues", where={"state": ["open"]})


async def test_the_first_documents_are_found_without_a_look_at_the_others(store: SqliteStore, steps: Steps) -> None:
    def look(db: sqlite3.Connection) -> None:
        from amplifier_storage_sqlite.documents import find

        place = {"project": "/p", "collection": "issues"}
        assert len(find(db, place, {}, b"i", newest=True, limit=3)) == 3

    await store.write_documents([_change(f"i{number:04}", {"n": number}) for number in range(10)])
    few = steps(look)
    await store.write_documents([_change(f"i{number:04}", {"n": number}) for number in range(10, 2000)])
    assert steps(look) == few


@pytest.mark.parametrize("seed", range(5))
async def test_documents_are_found_as_in_the_store_in_memory(seed: int, store: SqliteStore) -> None:
    chance, memory = random.Random(seed), MemoryStore()
    words = [
        "deploy",
        "deployment",
        "Größe",
        "grosse",
        "a",
        "to",
        "検索",
        "全文検索",
        "max_depth",
        "naïve",
        "\udce9",
        "🙂",
    ]
    for _ in range(100):
        version = chance.choice([0, 1, 2])
        text = " ".join(chance.choices(words, k=chance.randrange(6)))
        data = None if chance.random() < 0.1 else {"text": text, "more": chance.choice(words)}
        searched = chance.choice([(), ("text",), ("text",), ("more", "text")])
        place = chance.choice("pq"), chance.choice(["notes", "others"]), f"{chance.randrange(20)}"
        for each in (memory, store):
            with suppress(DocumentConflict):
                await each.write_documents([DocumentChange(*place, data, version, searched)])
    for query in [*words, "dep", "gro", "検", " ".join(words[:5]), "deploy to 検索"]:
        found = [await each.search_documents("p", "notes", query, limit=5) for each in (memory, store)]
        assert [(each.document.key, each.snippet) for each in found[0]] == [
            (each.document.key, each.snippet) for each in found[1]
        ], query


async def test_a_search_among_many_documents_finds_the_old_ones_with_rare_words_or_all_words(
    store: SqliteStore,
) -> None:
    texts = ["the alpha beta rollback", *(f"the alpha {n}" for n in range(1100)), *(f"beta {n}" for n in range(1100))]
    notes = [DocumentChange("/p", "notes", f"{n:05}", {"text": text}, 0, ("text",)) for n, text in enumerate(texts)]
    await store.write_documents(notes)
    for query in ("rollback", "the rollback", "alpha beta", "beta of the rollback"):
        [first, *_] = await store.search_documents("/p", "notes", query)
        assert first.document.key == "00000", query


async def test_a_search_looks_at_no_more_of_many_documents_than_of_some(store: SqliteStore, steps: Steps) -> None:
    def look(db: sqlite3.Connection) -> None:
        from amplifier_storage_sqlite.searching import search

        assert len(search(db, {"project": "/p", "collection": "notes"}, ["the", "key7"], 3)) == 3

    def notes(start: int, stop: int) -> list[DocumentChange]:
        return [
            DocumentChange("/p", "notes", f"{n}", {"text": f"the key{n}"}, 0, ("text",)) for n in range(start, stop)
        ]

    await store.write_documents(notes(0, 1500))
    some = steps(look)
    await store.write_documents(notes(1500, 6000))
    assert steps(look) <= some * 1.1


async def test_a_damaged_index_of_words_is_made_anew(path: Path, store: SqliteStore) -> None:
    change = DocumentChange("/p", "notes", "a", {"text": "first"}, 0, ("text",))
    await store.write_documents([change])
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM document_index_data WHERE id > 10")
    [found] = await store.search_documents("/p", "notes", "first")
    assert found.document.key == "a"


async def test_a_salvaged_store_finds_its_documents(path: Path, store: SqliteStore) -> None:
    texts = [DocumentChange("/p", "notes", f"{n}", {"text": f"first {n} " * 300}, 0, ("text",)) for n in range(20)]
    await store.write_documents(texts)
    await store.close()
    salvaged = SqliteAdministration(path, 1).salvage()
    assert salvaged.lost == ()
    again = open_sqlite({"path": salvaged.path})
    found = await again.search_documents("/p", "notes", "first", limit=99)
    assert len(found) == 20
    await again.write_documents([replace(texts[0], data={"text": "second"}, version=1)])
    assert [each.snippet for each in await again.search_documents("/p", "notes", "second")] == ["second"]
    assert len(await again.search_documents("/p", "notes", "first", limit=99)) == 19
    await again.close()


async def test_a_store_without_a_search_in_it_keeps_its_documents_and_finds_new_texts(path: Path) -> None:
    path.touch(0o600)
    path.write_bytes(gzip.decompress((Path(__file__).parent / "stores" / "version11.db.gz").read_bytes()))
    store = open_sqlite({"path": path})
    kept = await store.documents("/p", "issues")
    assert [(each.version, each.data) for each in kept] == [
        (1, {"id": 1, "title": "Größe 🙂", "status": "open"}),
        (2, {"id": 2, "title": "two", "status": "closed"}),
    ]
    assert [each.key for each in await store.documents("/q", "issues")] == ["\udce9"]
    assert await store.search_documents("/p", "issues", "two") == []
    again = DocumentChange("/p", "issues", kept[1].key, {**kept[1].data, "status": "open"}, 2, ("title",))
    await store.write_documents([again])
    assert [each.document.version for each in await store.search_documents("/p", "issues", "two")] == [3]
    await store.close()


async def test_a_sqlite_without_full_text_search_keeps_documents_and_says_what_it_lacks(
    path: Path, store: SqliteStore
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DROP TABLE document_index")
    change = DocumentChange("/p", "notes", "a", {"text": "first"}, 0, ("text",))
    await store.write_documents([change])
    await store.write_documents([replace(change, version=1)])
    with pytest.raises(StoreUnavailable, match="has no FTS5 and cannot search"):
        await store.search_documents("/p", "notes", "first")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        rebuild_index(db)
    assert len(await store.search_documents("/p", "notes", "first")) == 1


@pytest.mark.parametrize("seed", range(5))
async def test_documents_change_as_in_the_store_in_memory(seed: int, store: SqliteStore) -> None:
    chance, memory = random.Random(seed), MemoryStore()
    keys = ["a", "a/1", "a/2", "\udce9", "🙂", "b\0"]
    for step in range(200):
        changes = [
            _change(
                chance.choice(keys),
                None if chance.random() < 0.2 else {"state": chance.choice(["open", "done", "\0", "\udce9"])},
                chance.choice([0, 0, 1, 1, 2, 3]),
            )
            for _ in range(chance.choice([1, 1, 1, 2, 3]))
        ]
        outcomes = []
        for each in (memory, store):
            try:
                logged = await each.write_documents(changes, emits=[SessionEvent(f"e{step}", {})])
                outcomes.append([event.sequence for event in logged])
            except DocumentConflict as conflict:
                outcomes.append([conflict.key])  # type: ignore[list-item]
        assert outcomes[0] == outcomes[1], (step, changes)
    for chosen in ({}, {"prefix": "a"}, {"newest": True, "limit": 2}, {"where": {"state": ["open", "\0"]}}):
        listed = [
            [(each.key, each.version, each.data) for each in await one.documents("/p", "issues", **chosen)]  # type: ignore[arg-type]
            for one in (memory, store)
        ]
        assert listed[0] == listed[1], chosen
