"""Test the file itself: its mode, its versions, and the errors for files unfit for a store."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sqlite3
import stat
import tempfile
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import SessionNotFound, StoreConflict, StoreDamaged, StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import administer_sqlite, copying, open_sqlite, opening, schema, sessions
from amplifier_storage_sqlite.faults import DamageError, translate_errors
from amplifier_storage_sqlite.opening import connect, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start, Steps, Unpack


@pytest.fixture(params=[0o000, 0o077, 0o277], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
async def test_files_and_folders_are_their_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "amplifier" / "store.db"
    store = open_sqlite({"path": str(path)})
    await store.create(SessionRecord("s"))
    files = {each.name: _mode(each) for each in path.parent.iterdir()}
    assert files == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    assert (_mode(path.parent), _mode(path.parent.parent)) == (0o700, 0o700)
    await store.close()


async def test_a_file_that_others_may_read_is_taken_from_them(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    files = [path, path.with_name("store.db-wal"), path.with_name("store.db-shm")]
    for each in files:
        each.chmod(0o644)
    other = open_sqlite({"path": path})
    assert [_mode(each) for each in files] == [0o600] * 3
    await other.close()


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    _open_and_close(tmp_path / "store.db")
    assert _mode(tmp_path) == 0o755


def _stored(path: Path, pages: int = 20) -> bytes:
    db = open_store(path, 1)
    db.execute("CREATE TABLE padding (x)")
    db.execute("INSERT INTO padding VALUES (zeroblob(?))", (4096 * pages,))
    db.close()
    return path.read_bytes()


def _execute(path: Path, *statements: str) -> list[object]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return [db.execute(statement).fetchone() for statement in statements]


def _open_and_close(path: Path) -> None:
    asyncio.run(open_sqlite({"path": path}).close())


@pytest.mark.parametrize("size", [0, 1, 99, 100, 511, 512, 4095, 4096, 10_000, -4096])
def test_a_truncated_file_is_damaged_and_never_an_empty_store(path: Path, size: int) -> None:
    content = _stored(path)[:size]
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"store\.db: is .*Go back to a backup: amplifier store restore"):
        open_sqlite({"path": path})
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"Dear diary, " * 100, b"\0" * 4096], ids=["text", "zeros"])
def test_a_file_that_is_no_database_is_damaged_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"store\.db: is "):
        open_sqlite({"path": path})
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE recipes (name)")
    db.close()
    with pytest.raises(StoreDamaged, match="is a database of another program"):
        open_sqlite({"path": path})


def test_a_store_of_a_newer_version_asks_for_an_update(path: Path) -> None:
    _open_and_close(path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreConflict, match=r"newer version.*pip install -U amplifier amplifier-storage-sqlite"):
        open_sqlite({"path": path})


# version 10 lacks the last table; the migration of version 6 changes values alone: it may run again
@pytest.mark.parametrize("version", [*range(6), 10])
def test_a_store_that_says_it_is_older_than_it_is_is_damaged(version: int, path: Path) -> None:
    _open_and_close(path)
    _execute(path, f"PRAGMA user_version = {version}")
    with pytest.raises(StoreDamaged, match="already exists|no such column"):
        open_sqlite({"path": path})
    assert _execute(path, "PRAGMA user_version", "SELECT count(*) FROM sessions") == [(version,), (0,)]


async def test_a_table_that_is_gone_is_damage(path: Path, store: SqliteStore) -> None:
    db = sqlite3.connect(path)
    db.execute("DROP TABLE messages")
    db.close()
    await store.create(SessionRecord("s"))
    with pytest.raises(StoreDamaged, match="no such table: messages"):
        await store.append("s", [{}], at=0)


async def test_a_message_that_is_gone_is_damage(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", [{"n": 0}, {"n": 1}, {"n": 2}], at=0)
    db = sqlite3.connect(path)
    db.execute("DELETE FROM messages WHERE position = 1")
    db.commit()
    db.close()
    with pytest.raises(StoreDamaged, match="message m2 is missing; see: amplifier session repair s"):
        await store.read("s")
    assert await store.read("s", 2) == [{"n": 2}]


@pytest.mark.parametrize("change", ["body = '{'", "body = x'ff'", "body = '{\"n\":1}'", "digest = digest + 1"])
async def test_a_message_that_is_not_what_was_written_is_damage(change: str, path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", [{"n": 0}], at=0)
    _execute(path, f"UPDATE messages SET {change}")
    with pytest.raises(StoreDamaged, match="message m1 is not what was written"):
        await store.read("s")


@pytest.mark.parametrize("change", ["message_count = 0", "name = 'other'", "history = 2", "parent_id = 't'"])
async def test_a_record_that_is_not_what_was_written_is_damage(change: str, path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", [{"n": 0}], at=0)
    await store.create(SessionRecord("t"))
    _execute(path, "DELETE FROM sessions WHERE session_id = 't'", f"UPDATE sessions SET {change}")
    said = "the record of session 's' is not what was written"
    for use in (store.get("s"), store.read("s"), store.append("s", [], at=1)):
        with pytest.raises(StoreDamaged, match=said):
            await use
    await store.create(SessionRecord("t"))
    for listed in (await store.sessions(), await store.find("s")):  # a list neither fails for it nor hides it
        [record] = [each for each in listed if each.session_id == "s"]
        assert record.status == "interrupted"
        assert said in (record.error or "")
    await store.delete("t")
    await store.delete("s")
    assert await store.sessions() == []


async def test_a_history_that_is_not_what_was_written_is_damage(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", [{"n": 0}, {"n": 1}], at=0)
    await store.create(SessionRecord("fork", fork_of="s"))
    _execute(path, "UPDATE histories SET shared = 1 WHERE source IS NOT NULL")
    with pytest.raises(StoreDamaged, match="message m1 is missing"):
        await store.read("fork")


async def _lose_in_index(path: Path) -> None:
    """Store the session `s`, and let the index of the ids know another one in its place."""
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    db = sqlite3.connect(path)
    page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_sessions_1'").fetchone()[0]
    db.close()
    await store.close()
    content = bytearray(path.read_bytes())
    end = page * 4096
    at = content.rindex(b"s", end - 100, end)
    content[at] = ord("r")
    path.write_bytes(content)


async def test_an_index_that_lost_a_session_is_damage_and_not_an_unknown_session(path: Path) -> None:
    await _lose_in_index(path)
    with (
        closing(connect(path, 1)) as damaged,
        pytest.raises(DamageError, match="the index of the session ids does not know 's'"),
    ):
        sessions.get(damaged, "s")


async def test_the_whole_table_is_looked_through_once_for_many_sessions_that_are_deleted(
    path: Path, steps: Steps
) -> None:
    store = open_sqlite({"path": path})
    await asyncio.gather(*(store.create(SessionRecord(f"s{number}")) for number in range(2000)))
    await store.close()

    def miss(db: sqlite3.Connection, times: int) -> None:
        for number in range(times):
            with suppress(SessionNotFound):
                sessions.get(db, f"deleted-{number}")

    once = steps(lambda db: miss(db, 1))
    assert once > 2000
    assert steps(lambda db: miss(db, 10)) < once + 500


@pytest.mark.parametrize("checked", [True, False], ids=["a small file", "a file too large to be checked when opened"])
@pytest.mark.parametrize("use", ["read", "written"])
async def test_a_bad_index_blocks_nothing_and_is_rebuilt(
    checked: bool, use: str, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await _lose_in_index(path)
    caplog.set_level("WARNING")
    if not checked:
        monkeypatch.setattr(opening, "CHECKED_AT_OPEN", 0)
    store = open_sqlite({"path": path})
    if use == "read":
        assert (await store.get("s")).session_id == "s"
    else:
        assert await store.append("s", [{}], at=0) == 1
    await store.close()
    assert _execute(path, "PRAGMA integrity_check") == [("ok",)]
    assert ("damaged indexes were rebuilt" in caplog.text) == checked


async def test_a_list_from_an_index_with_a_wrong_time_is_right(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "CHECKED_AT_OPEN", 0)
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s", name="kept"))
    await store.close()
    _execute(path, SETTLE)
    [(page,)] = _execute(path, "SELECT rootpage FROM sqlite_master WHERE name = 'sessions_by_time'")
    [(updated,)] = _execute(path, "SELECT updated FROM sessions")
    content = bytearray(path.read_bytes())
    end = page * 4096
    at = content.rindex(updated.to_bytes(8, "big")[2:], end - 100, end)
    content[at + 5] ^= 1
    path.write_bytes(content)
    store = open_sqlite({"path": path})
    found = await store.sessions(limit=9)  # in the order of the index
    assert [(each.session_id, each.name, each.error) for each in found] == [("s", "kept", None)]
    await store.close()
    assert _execute(path, "PRAGMA integrity_check") == [("ok",)]


async def test_an_index_that_knows_lost_rows_is_no_reason_to_forget_them(path: Path) -> None:
    """Newer versions of SQLite count the rows of indexes without a WHERE alone."""
    store = open_sqlite({"path": path})
    for name in ("news:one", "news:two"):
        await store.emit(SessionEvent(name, {}, "s"))
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        row = db.execute("SELECT * FROM sqlite_master WHERE name = 'events_by_id'").fetchone()
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_master WHERE name = 'events_by_id'")
    _execute(path, "DELETE FROM events WHERE name = 'news:two'")  # and not from the index
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row)
    with pytest.raises(StoreDamaged, match="wrong # of entries in index events_by_id"):
        open_sqlite({"path": path})


def test_a_file_that_is_cut_within_its_last_page_is_damaged_whatever_its_size(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "CHECKED_AT_OPEN", 0)
    content = _stored(path)
    path.write_bytes(content[:-1])
    with pytest.raises(StoreDamaged, match="its end is missing"):
        open_sqlite({"path": path})


def test_what_sqlite_quotes_of_a_damaged_schema_is_damage(path: Path) -> None:
    _open_and_close(path)
    name = b"sessions_by_time"
    path.write_bytes(path.read_bytes().replace(b"INDEX " + name + b" ON", b"INDEX " + name[:-1] + b"\xdf ON\xdf"[:4]))
    with pytest.raises(StoreDamaged, match=r"store\.db: is damaged"):
        open_sqlite({"path": path})


def _at_version(path: Path, version: int, *statements: str) -> None:
    """Make a store as the version wrote it that knew so many migrations."""
    path.touch(0o600)
    with pytest.MonkeyPatch.context() as patch, closing(sqlite3.connect(path, isolation_level=None)) as db:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:version])
        db.execute("PRAGMA journal_mode = WAL")
        schema.migrate(db, path)
        for statement in statements:
            db.execute(statement)


SETTLE = "UPDATE sessions SET recent = NULL, listed = updated"
"""Lets sessions move in their indexes."""
FIRST_SESSIONS = """INSERT INTO sessions VALUES
    (1, 's', NULL, NULL, NULL, 'one', '', '', '', '/p', 'idle', NULL, 1, 2, 3, 1, NULL, '{}', '{}'),
    (2, 'fork', 's', 's', 2, 'two', '', '', '', '/p', 'idle', NULL, 3, 4, 3, 1, NULL, '{}', '{}'),
    (3, 'deep', 'fork', 'fork', 3, '', '', '', '', '', 'idle', NULL, 5, 6, 3, 1, NULL, '{}', '{}')"""
FIRST_MESSAGES = """INSERT INTO messages VALUES
    (1, 0, '{"n":0}'), (1, 1, x'7b226e223a31 7d'), (1, 2, '{"n":2}'), (2, 2, '{"n":"own"}')""".replace(" 7d", "7d")


async def test_a_store_of_the_first_version_is_brought_over_whole(path: Path) -> None:
    _at_version(path, 1, FIRST_SESSIONS, FIRST_MESSAGES)
    store = open_sqlite({"path": path})
    assert await store.read("s") == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert await store.read("fork") == await store.read("deep") == [{"n": 0}, {"n": 1}, {"n": "own"}]
    record = await store.get("fork")
    assert (record.parent_id, record.fork_of, record.fork_at, record.name) == ("s", "s", 2, "two")
    assert await store.append("deep", [{"n": 4}], at=3) == 4
    assert [await store.examine(each) for each in ("s", "fork", "deep")] == [[], [], []]
    await store.close()


SECOND_DELIVERIES = """INSERT INTO deliveries
    (delivery_id, project, lane, trigger, event, state, attempts, epoch, available_at, created, updated)
    VALUES ('d1', '/p', 'l', 't', '{}', 'done', 1, 1, 1, 1, 1), ('d2', '/p', 'l', 't', '{}', 'dead', 1, 1, 1, 1, 1)"""


async def test_a_store_of_the_second_version_can_be_purged(path: Path) -> None:
    _at_version(path, 2, SECOND_DELIVERIES)
    store = open_sqlite({"path": path})
    assert (await store.purge(before=datetime.now(UTC))).deliveries == 1
    await store.close()
    assert _execute(path, "SELECT delivery_id FROM deliveries") == [("d2",)]


THIRD_DELIVERIES = """INSERT INTO deliveries
    (delivery_id, project, lane, trigger, event, state, attempts, epoch, session_id, available_at, created, updated)
    VALUES ('d1', '/p', 'l', 't', '{EVENT}', 'done', 1, 1, 's', 1, 1, 1),
        ('d2', '/p', 'l', 't', '{EVENT}', 'pending', 0, 0, NULL, 2, 2, 2),
        ('d3', '/p', 'l', 't', '{', 'dead', 1, 1, 's', 3, 3, 3)
    """.replace(
    "{EVENT}", '{"type":"timer","source":"x","timestamp":"2026-01-01T00:00:00+00:00","event_id":"e","cause":"c"}'
)


async def test_a_store_of_the_third_version_keeps_its_deliveries_and_finds_them(path: Path) -> None:
    _at_version(path, 3, THIRD_DELIVERIES)
    store = open_sqlite({"path": path})
    for wanted in ({"event_id": "e"}, {"cause": "c"}):
        found = await store.deliveries(**wanted)
        assert [(each.delivery_id, each.key, each.priority) for each in found] == [("d2", None, 0), ("d1", None, 0)]
    assert [each.delivery_id for each in await store.deliveries(session_id="s", state="done")] == ["d1"]
    [counted] = await store.delivery_counts()
    assert counted.counts == {"done": 1, "pending": 1, "dead": 1}
    claimed = await store.claim("/p", "l", owner="me", lease=60, session_id="s")
    assert claimed is not None
    assert claimed.delivery_id == "d2"
    await store.close()


async def test_a_store_that_version_five_wrote_keeps_its_states_and_its_deliveries_let_go_of_them(
    unpack: Unpack,
) -> None:
    path = unpack(5)
    with closing(sqlite3.connect(path)) as db:
        states = {name: json.loads(state) for name, state in db.execute("SELECT trigger, state FROM trigger_states")}
        written = [event for (event,) in db.execute("SELECT event FROM deliveries ORDER BY id DESC")]
    events = [json.loads(event) for event in written]
    store = open_sqlite({"path": path})
    for trigger, state in states.items():
        assert await store.trigger_state("/tmp/project", str(trigger)) == state
    assert len(states["b/review/trigger-file-watcher#1"]) == 6
    kept = [(each.event.event_id, each.event.data, each.event.dedupe_key) for each in await store.deliveries()]
    assert kept == [(event["event_id"], event["data"], event["dedupe_key"]) for event in events]
    await store.close()
    [size] = _execute(path, "SELECT sum(length(event)) FROM deliveries")
    assert size[0] < sum(map(len, written)) / 5  # type: ignore[index]
    assert _execute(path, "SELECT count(*) FROM deliveries WHERE instr(event, '\"state\"') > 0") == [(0,)]


SIXTH_STATE = '{"of":"' + "x" * 20_000 + '"}'
SIXTH_DELIVERIES = f"""INSERT INTO deliveries
    (delivery_id, project, queue, trigger, event, state, attempts, epoch, available_at, created, updated) VALUES
    ('d0', '/p', 'q', 't', '{{"state":{{', 'dead', 1, 1, 1, 1, 1),
    {", ".join(f"('d{n}', '/p', 'q', 't', CAST('{{EVENT}}' AS BLOB), 'done', 1, 1, {n}, 1, 1)" for n in range(1, 100))}
    """.replace(
    "{EVENT}",
    '{"type":"timer","source":"x","timestamp":"2026-01-01T00:00:00+00:00","data":{"n":1},"state":STATE}',
).replace("STATE", SIXTH_STATE)
SIXTH_STATES = f"""INSERT INTO trigger_states VALUES
    ('/p', 't', '{SIXTH_STATE}'), ('/p', 'empty', '{{}}'), ('/p', 'damaged', '{{"of')"""


async def test_a_store_of_the_sixth_version_shrinks_by_the_states_in_its_deliveries(path: Path) -> None:
    _at_version(path, 6, SIXTH_DELIVERIES, SIXTH_STATES)
    _execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.stat().st_size
    store = open_sqlite({"path": path})
    assert len(await store.deliveries(state="done")) == 99
    assert [await store.trigger_state("/p", name) for name in ("t", "empty")] == [json.loads(SIXTH_STATE), {}]
    with pytest.raises(StoreDamaged):
        await store.trigger_state("/p", "damaged")
    await store.close()
    assert path.stat().st_size < before / 5


async def test_a_store_of_the_tenth_version_takes_documents(path: Path) -> None:
    event = """INSERT INTO events (name, data, timestamp, event_id, depth, project)
        VALUES ('work:done', '{"n":1}', 1, 'e1', 0, '/p')"""
    _at_version(path, 10, event)
    store = open_sqlite({"path": path})
    assert await store.document("/p", "issues", "1") is None
    [logged] = await store.write_documents(
        [DocumentChange("/p", "issues", "1", {"n": 1})], emits=[SessionEvent("issue:new", {})]
    )
    assert [each.name for each in await store.events()] == ["work:done", "issue:new"]
    assert logged.sequence == 2
    await store.close()
    assert administer_sqlite({"path": path}).check() == []


def test_eight_processes_that_open_an_older_store_migrate_it_once(path: Path, start: Start) -> None:
    _at_version(path, 1, FIRST_SESSIONS, FIRST_MESSAGES)
    processes = [start(OPEN_WHEN_TOLD, path) for _ in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[0] for process in processes] == ["3 3\n"] * 8
    assert _execute(path, "PRAGMA user_version", "SELECT count(*) FROM messages") == [(len(schema.MIGRATIONS),), (4,)]


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_version(path, 1, FIRST_SESSIONS, FIRST_MESSAGES)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE later (x)", "INSERT nonsense")))
    with pytest.raises(StoreUnavailable, match="SQLite failed"):
        open_sqlite({"path": path})
    assert _execute(
        path,
        "PRAGMA user_version",
        "SELECT count(*) FROM messages WHERE session = 1",
        "SELECT count(*) FROM sqlite_master WHERE name IN ('later', 'histories')",
    ) == [(1,), (3,), (0,)]


async def test_a_backup_is_a_store_of_its_own_for_its_owner_alone(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", [{"n": 0}], at=0)
    copy = path.with_name("copy.db")
    await store.backup(copy)
    await store.append("s", [{"n": 1}], at=1)
    assert sorted(each.name for each in path.parent.iterdir() if "copy" in each.name) == ["copy.db"]
    assert _mode(copy) == 0o600
    copied = open_sqlite({"path": copy})
    assert await copied.read("s") == [{"n": 0}]
    await copied.close()
    with pytest.raises(StoreUnavailable, match=r"copy\.db: is there already"):
        await store.backup(copy)
    with pytest.raises(StoreUnavailable, match=r"nowhere/copy\.db: cannot be opened"):
        await store.backup(path.parent / "nowhere" / "copy.db")


async def test_a_store_that_is_damaged_is_not_backed_up(path: Path, store: SqliteStore) -> None:
    db = sqlite3.connect(path)
    page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'deliveries'").fetchone()[0]
    db.close()
    await store.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff")
    with pytest.raises(StoreDamaged, match=r"store\.db: is damaged"):
        copying.back_up(path, path.with_name("copy.db"))
    assert [each.name for each in path.parent.iterdir() if "copy" in each.name] == []


def test_a_path_below_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for below in ("file/store.db", "file/folder/store.db"):
        with pytest.raises(StoreUnavailable, match=r"store\.db: cannot be opened .*Check that you may write"):
            open_sqlite({"path": tmp_path / below})


def test_a_folder_in_place_of_the_file_is_unavailable(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(StoreUnavailable, match="is not a file"):
        open_sqlite({"path": tmp_path})
    assert _mode(tmp_path) == 0o755


def test_a_lack_of_file_descriptors_is_told_as_that(path: Path) -> None:
    said = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        for open_one in (sqlite3.connect, Path.touch):
            try:
                with translate_errors(path):
                    open_one(path)
            except StoreUnavailable as error:
                said.append(str(error))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert said == [f"{path}: cannot be opened: no file descriptor is free. Raise the limit: ulimit -n"] * 2


OPEN_WHEN_TOLD = """
async def main(path):
    say("ready")
    sys.stdin.readline()
    store = open_sqlite({"path": path})
    say(len(await store.read("s")), len(await store.read("fork")))
    await store.close()

asyncio.run(main(sys.argv[1]))
"""

OPEN_AS_NOBODY = """
import tempfile
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)  # root may write everywhere
try:
    open_sqlite({"path": sys.argv[1]})
except OSError as error:
    say(type(error).__name__, error)
"""


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())  # outside `tmp_path`, whose parents only their owner may enter
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_unavailable(read_only_folder: Path, start: Start) -> None:
    path = read_only_folder / "store.db"
    output = start(OPEN_AS_NOBODY, path).communicate()[0]
    assert output.startswith(f"StoreUnavailable {path}: cannot be opened (Permission denied). Check that you may write")


async def test_a_locked_store_is_unavailable_until_it_is_free(path: Path) -> None:
    store = open_sqlite({"path": path, "busy_timeout": 0})
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="is locked by another process"):
        await store.create(SessionRecord("s"))
    other.execute("ROLLBACK")
    other.close()
    await store.create(SessionRecord("s"))
    await store.close()


def test_a_store_that_was_deleted_is_unavailable_and_not_made_anew(path: Path) -> None:
    store = open_sqlite({"path": path})
    path.unlink()
    for use in (store.get("s"), store.create(SessionRecord("s"))):
        with pytest.raises(StoreUnavailable, match="was removed while in use. Stop everything that uses it"):
            asyncio.run(use)
    with pytest.raises(StoreUnavailable, match="was removed while in use"):
        store.administration.probe()
    assert not path.exists()
    asyncio.run(store.close())


def test_a_store_that_was_replaced_takes_no_write_that_would_be_lost(path: Path) -> None:
    store = open_sqlite({"path": path})
    other = path.with_name("other.db")
    _open_and_close(other)
    other.replace(path)
    for use in (store.get("s"), store.create(SessionRecord("s"))):
        with pytest.raises(StoreUnavailable, match="was replaced by another file while in use"):
            asyncio.run(use)
    with pytest.raises(StoreUnavailable, match="was replaced by another file while in use"):
        store.administration.probe()
    asyncio.run(store.close())


async def test_a_path_means_a_file_whatever_it_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "file:x?mode=memory", "100% #1.db"):
        store = open_sqlite({"path": name})
        await store.close()
        assert (tmp_path / name).is_file()


async def test_a_folder_keeps_its_store_under_a_name_that_is_known(tmp_path: Path) -> None:
    store = open_sqlite({"folder": str(tmp_path / "data")})
    await store.close()
    assert [each.name for each in (tmp_path / "data").iterdir()] == ["amplifier.db"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "neither path nor folder is set. Set path to a file, or folder to where amplifier.db is kept"),
        ({"path": "x", "folder": "y"}, "both path and folder are set"),
        ({"folder": ""}, "folder: '' is not the path of a folder"),
        ({"path": ""}, "path: '' is not the path of a file"),
        ({"path": "a\0b"}, "is not the path of a file"),
        ({"path": 3}, "path: 3 is not the path of a file"),
        ({"path": "x", "pth": "y"}, "unknown key 'pth'. Known: path, folder, busy_timeout"),
        ({"path": "x", "busy_timeout": -1}, "busy_timeout: -1 is not within 0 and 3600 seconds"),
        ({"path": "x", "busy_timeout": True}, "busy_timeout: True is not within"),
    ],
)
def test_a_configuration_that_cannot_work_says_which_key(config: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=rf"storage-sqlite: .*{message}"):
        open_sqlite(config)


async def test_what_was_deleted_is_in_no_page_of_the_file(path: Path) -> None:
    store = open_sqlite({"path": path})
    secret = "what nobody is to read again " * 400
    for session_id in ("gone", "stays"):
        await store.create(SessionRecord(session_id))
        await store.append(session_id, [{"role": "user", "content": f"{secret}{session_id}"}], at=0)
    await store.delete("gone")
    await store.close()
    content = b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))
    assert (content.count(b"read again gone"), content.count(b"read again stays")) == (0, 1)
