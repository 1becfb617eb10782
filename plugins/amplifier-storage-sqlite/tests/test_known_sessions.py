"""The writer knows the records of the last turns; nothing that changes a record otherwise is overlooked."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import SessionConflict, SessionExists, SessionNotFound, StoreDamaged
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import open_sqlite, sessions
from amplifier_storage_sqlite.values import checksum

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

TURN = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]


@pytest.fixture
async def known(store: SqliteStore) -> SqliteStore:
    """Return a store whose writer knows the session `s` with one turn."""
    await store.create(SessionRecord("s"))
    await store.append("s", TURN, at=0)
    assert list(store._writer._db.known_sessions) == ["s"]
    return store


async def test_a_turn_of_a_known_session_reads_no_record_and_seals_it_as_before(
    known: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.delattr(sessions, "_read_row")
        assert await known.append("s", TURN, at=2) == 4
    assert (await known.get("s")).message_count == 4  # its checksum is right
    assert await known.examine("s") == []


@pytest.mark.parametrize("name", ["", "plain", "é\N{PARTY POPPER}", "from a file name \udcff", "a\0b"])
async def test_every_turn_is_sealed_as_a_whole_record_is(store: SqliteStore, name: str) -> None:
    record = await store.create(SessionRecord("s", name=name, config={"text": "é" * 100}, metadata={"of": name}))
    for at in range(0, 8, 2):
        await store.append("s", TURN, at=at)
        [row] = await store._writer.run(lambda db: db.execute(f"SELECT {sessions.COLUMNS} FROM sessions").fetchall())
        assert row[-1] == checksum(*row[:-1])
    found = await store.get("s")
    assert (found.name, found.metadata, found.message_count) == (record.name, record.metadata, 8)


async def test_the_first_turn_of_a_new_session_reads_no_record(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(SessionRecord("new", name="é", config={"k": [1]}))
    with monkeypatch.context() as patched:
        patched.delattr(sessions, "_read_row")
        assert await store.append("new", TURN, at=0) == 2
    assert (await store.get("new")).message_count == 2  # its checksum is right
    assert await store.examine("new") == []


async def test_a_session_that_could_not_be_made_is_not_known(known: SqliteStore) -> None:
    for _ in range(2):
        with pytest.raises(SessionExists):
            await known.create(SessionRecord("s", name="another"))
        assert await known.append("s", [], at=2) == 2
    assert await known.append("s", TURN, at=2) == 4
    assert (await known.get("s")).name == ""


async def test_changed_fields_stay_changed(known: SqliteStore) -> None:
    await known.update("s", name="named", status="failed")
    await known.append("s", TURN, at=2)
    record = await known.get("s")
    assert (record.name, record.status, record.message_count) == ("named", "failed", 4)


async def test_a_change_of_a_known_session_reads_no_record_and_seals_it_anew(
    known: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.delattr(sessions, "_read_row")
        await known.update("s", name="é", metadata={"a": 1})
        assert await known.append("s", TURN, at=2) == 4
        await known.update("s", status="completed", turn_count=2)
    record = await known.get("s")  # its checksum is right
    assert (record.name, record.metadata, record.status) == ("é", {"a": 1}, "completed")
    assert (record.message_count, record.turn_count) == (4, 2)
    assert await known.examine("s") == []
    assert [each.session_id for each in await known.sessions()] == ["s"]


async def test_a_delivery_changes_the_record_too(known: SqliteStore) -> None:
    from amplifier_core.triggers import TriggerEvent, TriggerType

    await known.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.MANUAL, "trigger"))
    delivery = await known.claim("/p", "queue", owner="me", lease=60, session_id="s")
    assert delivery is not None
    await known.commit(delivery, session={"turn_count": 7})
    await known.append("s", TURN, at=2)
    assert (await known.get("s")).turn_count == 7


async def test_what_another_process_wrote_is_seen(known: SqliteStore, path: Path) -> None:
    other = open_sqlite({"path": path})
    await other.append("s", TURN, at=2)
    await other.update("s", name="theirs")
    with pytest.raises(SessionConflict, match="has 4 messages, not 2"):
        await known.append("s", TURN, at=2)
    await known.append("s", TURN, at=4)
    assert ((await known.get("s")).name, (await other.get("s")).message_count) == ("theirs", 6)
    await other.delete("s")
    with pytest.raises(SessionNotFound):
        await known.append("s", TURN, at=6)
    await other.close()


async def test_a_deleted_session_is_gone_and_a_new_one_of_its_name_begins_empty(known: SqliteStore) -> None:
    await known.delete("s")
    with pytest.raises(SessionNotFound):
        await known.append("s", TURN, at=2)
    await known.create(SessionRecord("s", name="new"))
    assert await known.append("s", TURN, at=0) == 2
    assert (await known.get("s")).name == "new"


async def test_turns_undone_with_a_batch_are_not_known(known: SqliteStore) -> None:
    def fails(db: sqlite3.Connection) -> None:
        sessions.update(db, "s", {"name": "half"})
        raise ValueError("after a change")

    turn, failure = await asyncio.gather(
        known.append("s", TURN, at=2), known._writer.run(fails), return_exceptions=True
    )
    assert (turn, type(failure)) == (4, ValueError)
    assert await known.append("s", TURN, at=4) == 6
    record = await known.get("s")
    assert (record.name, record.message_count) == ("", 6)
    assert await known.examine("s") == []


async def test_a_conflict_leaves_the_record_as_it_is(known: SqliteStore) -> None:
    with pytest.raises(SessionConflict):
        await known.append("s", TURN, at=9)
    assert await known.append("s", TURN, at=2) == 4


async def test_a_record_damaged_in_the_file_is_found(known: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET name = 'forged'")
    with pytest.raises(StoreDamaged, match="is not what was written"):
        await known.append("s", TURN, at=2)


async def test_it_knows_the_last_ones_only(known: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplifier_storage_sqlite.opening.MOST_KNOWN", 3)
    for number in range(6):
        await known.create(SessionRecord(f"s{number}"))
        await known.append(f"s{number}", TURN, at=0)
        assert len(known._writer._db.known_sessions) <= 4
