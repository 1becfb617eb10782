"""Change documents from several processes, damage them, and compare the store with the one in memory."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import DocumentConflict, StoreDamaged
from amplifier_core.events import SessionEvent
from amplifier_core.testing import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

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
