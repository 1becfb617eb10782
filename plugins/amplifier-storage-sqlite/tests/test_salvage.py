"""Damage files in every part, and salvage the rest."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import StoreDamaged
from amplifier_core.events import SessionEvent
from amplifier_core.storage import Admission, Salvaged, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import administer_sqlite, open_sqlite
from amplifier_storage_sqlite.carving import Pages

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

PAGE = 4096
LATER = datetime.now(UTC) + timedelta(days=1)


def _execute(path: Path, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return [db.execute(statement).fetchall() for statement in statements]


async def _fill(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Make a store with everything in it, some of it deleted again; return the histories."""
    store = open_sqlite({"path": path})
    for number in range(20):
        await store.create(SessionRecord(f"s{number}", name=f"name {number}", project="/p", config={"n": number}))
        long = {"role": "tool", "content": "long " * 3000}
        await store.append(f"s{number}", [*({"n": n, "content": "ä" * 100} for n in range(number)), long], at=0)
        await store.create(SessionRecord(f"fork{number}", fork_of=f"s{number}", fork_at=number, parent_id=f"s{number}"))
        await store.append(f"fork{number}", [{"own": number}], at=number)
        event = TriggerEvent(
            TriggerType.CUSTOM, "test", event_id=f"e{number}", data={"n": number}, state={"at": number}
        )
        await store.enqueue("/p", "queue", "trigger-x#0", event, admission=Admission(f"k{number % 3}"))
        await store.emit(SessionEvent(f"done:{number}", {"n": number}))
        text = {"text": "long " * (1000 if number % 5 == 0 else 5), "odd": "\udce9"}
        await store.write_documents([DocumentChange("/p", "issues", f"i{number}\udce9", text)])
    await store.write_documents([DocumentChange("/p", "issues", "i4\udce9", None, 1)])
    for number in (3, 17):
        await store.delete(f"s{number}")
    await store.delete("fork5")
    await store.dead_letter(await _claim(store), reason="gave up")
    await store.purge(before=LATER, event_bytes=0)
    histories = {record.session_id: await store.read(record.session_id) for record in await store.sessions()}
    await store.close()
    return histories


async def _claim(store: DurableStore) -> Any:
    return await store.claim("/p", "queue", owner="me", lease=60, session_id="woken")


async def _open_salvaged(path: Path) -> tuple[Salvaged, Any]:
    found = administer_sqlite({"path": path}).salvage()
    assert administer_sqlite({"path": found.path}).check() == [] or found.lost
    return found, open_sqlite({"path": found.path})


async def test_an_undamaged_store_is_salvaged_row_by_row(path: Path) -> None:
    histories = await _fill(path)
    found, store = await _open_salvaged(path)
    await store.close()
    assert found.lost == ()
    [named] = _execute(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    indexes = ("document_index", "message_index", "session_index", "word_", "deleted_messages")
    tables = [name for (name,) in named if not name.startswith(indexes)]
    assert set(tables) >= {"sessions", "messages", "histories", "deliveries", "events", "trigger_states", "cuts"}
    assert _execute(path, "SELECT count(*) FROM documents") == [[(19,)]]
    _execute(path, "UPDATE sessions SET recent = NULL, listed = updated")  # as a salvaged store lists them
    for table in tables:
        [before], [after] = (_execute(each, f"SELECT * FROM {table} ORDER BY 1, 2") for each in (path, found.path))
        assert after == before, table
    again = open_sqlite({"path": found.path})
    assert {each: await again.read(each) for each in histories} == histories
    logged = await again.emit(SessionEvent("later", {}))
    assert logged.sequence == 21, "a sequence must not be used again, although the log was purged"
    await again.close()


async def test_the_last_writes_are_salvaged_from_the_log(path: Path) -> None:
    await _fill(path)
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("in-the-log"))
    await store.append("in-the-log", [{"n": 1}], at=0)
    found, salvaged = await _open_salvaged(path)
    assert (found.lost, await salvaged.read("in-the-log")) == ((), [{"n": 1}])
    await salvaged.close()
    await store.close()


async def test_destroyed_indexes_cost_nothing(path: Path) -> None:
    histories = await _fill(path)
    content = bytearray(path.read_bytes())
    [pages] = _execute(path, "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    for (page,) in pages:
        content[(page - 1) * PAGE : page * PAGE] = b"\xff" * PAGE
    path.write_bytes(content)
    found, store = await _open_salvaged(path)
    assert {each: await store.read(each) for each in histories} == histories
    assert [each.event.event_id for each in await store.deliveries()] == [f"e{n}" for n in reversed(range(20))]
    assert all("page" in each for each in found.lost)
    await store.close()


async def test_a_destroyed_header_and_schema_cost_nothing(path: Path) -> None:
    histories = await _fill(path)
    content = bytearray(path.read_bytes())
    content[:PAGE] = bytes(PAGE)
    path.write_bytes(content)
    found, store = await _open_salvaged(path)
    read = {each: await store.read(each) for each in histories}
    assert read == histories
    assert await store.trigger_state("/p", "trigger-x#0") == {"at": 19}
    await store.close()
    assert found.rows["deliveries"] == 20


async def test_a_destroyed_table_page_costs_its_own_rows_and_is_told(path: Path) -> None:
    histories = await _fill(path)
    content = bytearray(path.read_bytes())
    marker = content.index(b'{"n":12,"content"') // PAGE
    content[marker * PAGE : (marker + 1) * PAGE] = random.Random(1).randbytes(PAGE)
    path.write_bytes(content)
    found, store = await _open_salvaged(path)
    assert f"page {marker + 1} of the file is unreadable" in found.lost
    told = {each.split(":")[0].removeprefix("session ") for each in found.lost if each.startswith("session ")}
    assert told
    for session_id, messages in histories.items():
        if session_id not in told:
            assert await store.read(session_id) == messages
        else:
            assert await store.examine(session_id) != []
            await store.repair(session_id)
            kept = await store.read(session_id)
            assert kept == messages[: len(kept)]
    await store.close()


async def test_a_damaged_document_is_left_out_and_told(path: Path) -> None:
    await _fill(path)
    _execute(path, "UPDATE documents SET version = 9 WHERE rowid = 7")
    found, store = await _open_salvaged(path)
    assert "1 rows of documents are damaged" in found.lost
    assert found.rows["documents"] == len(await store.documents("/p", "issues")) == 18
    await store.close()


async def test_a_record_that_names_another_history_is_not_taken_for_it(path: Path) -> None:
    histories = await _fill(path)
    _execute(path, "UPDATE sessions SET history = 999 WHERE session_id = 's9'")
    found, store = await _open_salvaged(path)
    assert await store.read("fork9") == histories["fork9"]
    assert "s9" not in {record.session_id for record in await store.sessions()}
    assert "1 rows of sessions are damaged" in found.lost
    await store.close()


async def test_a_session_that_lost_its_record_keeps_its_id_and_its_messages(path: Path) -> None:
    histories = await _fill(path)
    _execute(path, "UPDATE sessions SET name = 'other' WHERE session_id = 's9'")
    found, store = await _open_salvaged(path)
    assert await store.read("s9") == histories["s9"]
    record = await store.get("s9")
    assert (record.status, record.error) == ("interrupted", "its record was damaged; its messages were salvaged")
    assert "the record of session s9: its name, parent and configuration" in found.lost
    await store.close()


async def test_messages_without_a_session_get_one(path: Path) -> None:
    histories = await _fill(path)
    _execute(path, "DELETE FROM sessions WHERE session_id = 'fork7'")
    found, store = await _open_salvaged(path)
    [name] = [each.split()[4].rstrip(":") for each in found.lost if each.startswith("the record of session salvaged-")]
    assert await store.read(name) == histories["fork7"]
    await store.close()


async def test_a_lost_link_is_made_anew_from_the_records(path: Path) -> None:
    histories = await _fill(path)
    _execute(path, "DELETE FROM histories WHERE source IS NOT NULL")
    _, store = await _open_salvaged(path)
    assert {each: await store.read(each) for each in histories if each.startswith("s")} == {
        each: messages for each, messages in histories.items() if each.startswith("s")
    }
    assert await store.read("fork9") == histories["fork9"]
    await store.close()


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_is_damaged_every_message_is_there_or_its_loss_is_told(seed: int, path: Path) -> None:
    histories = await _fill(path)
    content, chosen = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(chosen.randint(1, 12)):
        at, length = chosen.randrange(len(content)), chosen.choice((1, 8, 500, PAGE, 3 * PAGE))
        content[at : at + length] = chosen.randbytes(len(content[at : at + length]))
    path.write_bytes(content[: chosen.choice((len(content), len(content), len(content) - chosen.randrange(60_000)))])
    found, store = await _open_salvaged(path)
    there = {record.session_id for record in await store.sessions()}
    for session_id, messages in histories.items():
        if session_id not in there:
            assert found.lost
            continue
        if any(each.kind == "bad_message" for each in await store.examine(session_id)):
            assert found.lost
            await store.repair(session_id)
        kept = await store.read(session_id)
        assert kept == messages or found.lost
    await store.close()


async def test_rows_that_were_deleted_do_not_come_back(path: Path) -> None:
    await _fill(path)
    _, store = await _open_salvaged(path)
    ids = {record.session_id for record in await store.sessions()}
    assert not ids & {"s3", "s17", "fork5"}
    assert await store.events() == []
    await store.close()


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 100_000, b"SQLite format 3\0" + b"\xff" * 50_000])
def test_pages_of_anything_are_read_without_an_error(content: bytes) -> None:
    assert list(Pages(content).rows()) == []


@pytest.mark.parametrize("content", [b"", b"no store", b"\0" * 100_000, b"SQLite format 3\0" + b"\xff" * 50_000])
def test_a_file_without_a_readable_row_makes_no_empty_store(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match="nothing in it is readable. Go back to a backup"):
        administer_sqlite({"path": path}).salvage()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_pages_that_are_zero_or_cut_off_are_told_as_lost(path: Path) -> None:
    await _fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: 40 * PAGE])
    assert any("pages of the file are missing" in each for each in administer_sqlite({"path": path}).salvage().lost)
    path.write_bytes(whole[: 8 * PAGE] + bytes(PAGE) + whole[9 * PAGE :])
    assert "page 9 of the file is unreadable" in administer_sqlite({"path": path}).salvage().lost
