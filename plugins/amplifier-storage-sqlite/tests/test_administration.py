"""Look at the room of a file, check it, back it up, restore it, and give free room back."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import BackupNotFound, StoreConflict, StoreDamaged, StoreUnavailable
from amplifier_core.storage import SessionRecord, StoreAdministration, administration_of
from amplifier_core.store_administration import RestoreLosses, compactions
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import administer_sqlite, open_sqlite
from amplifier_storage_sqlite.administration import SqliteAdministration, _uses
from amplifier_storage_sqlite.schema import MIGRATIONS, upgrade

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start


@pytest.fixture
def administration(path: Path) -> SqliteAdministration:
    return administer_sqlite({"path": path})


def _execute(path: Path, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return [db.execute(statement).fetchone() for statement in statements]


async def _fill(store: SqliteStore, sessions: int = 3, text: str = "x" * 500) -> None:
    for number in range(sessions):
        await store.create(SessionRecord(f"s{number}"))
        await store.append(f"s{number}", [{"n": n, "content": text} for n in range(10)], at=0)


def test_the_factory_offers_the_administration_of_its_store(path: Path) -> None:
    found = administration_of(open_sqlite, {"path": path})
    assert isinstance(found, StoreAdministration)
    assert administration_of(lambda config: None, {}) is None


def test_a_store_that_is_not_there_has_no_administration(administration: SqliteAdministration, path: Path) -> None:
    for use in (administration.info, administration.check, administration.backup, administration.salvage):
        with pytest.raises(StoreUnavailable, match="is not there"):
            use()
    assert not path.exists()


async def test_room_is_told_by_kind_and_by_the_largest(store: SqliteStore, path: Path) -> None:
    await _fill(store)
    event = TriggerEvent(TriggerType.CUSTOM, "test", data={"text": "y" * 40_000}, state={"cursor": "z" * 90_000})
    await store.enqueue("/p", "reviewer", "trigger-x#0", event)
    info = store.administration.info()
    assert info.place == path
    assert {use.kind: use.rows for use in info.uses} == {
        "sessions": 3,
        "messages": 30,
        "deliveries": 1,
        "events": 0,
        "documents": 0,
        "trigger states": 2,
        "received ids": 0,
        "search in messages": 0,
        "search in sessions": 0,
    }
    assert [use.bytes for use in info.uses] == sorted((use.bytes for use in info.uses), reverse=True)
    assert info.bytes >= sum(use.bytes for use in info.uses) > 130_000
    assert [use.kind for use in info.largest[:2]] == ["state of trigger-x#0", "queue reviewer"]
    assert info.largest[0].bytes >= 90_000
    assert (info.free, info.backups) == (0, ())


async def test_documents_are_counted_and_the_largest_collections_named(store: SqliteStore) -> None:
    changes = [DocumentChange("/p", "issues", f"i{number}", {"text": "x" * 50_000}) for number in range(3)]
    await store.write_documents([*changes, DocumentChange("/p", "todos", "t", {})])
    info = store.administration.info()
    assert (info.uses[0].kind, info.uses[0].rows) == ("documents", 4)
    assert (info.largest[0].kind, info.largest[0].rows) == ("documents of issues", 3)
    assert info.largest[0].bytes > 150_000


async def test_a_sqlite_without_statistics_tells_the_bytes_of_the_values(store: SqliteStore, path: Path) -> None:
    await _fill(store)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TEMP TABLE dbstat (x)")
        uses = {use.kind: (use.rows, use.bytes) for use in _uses(db)}
    assert uses["messages"][0] == 30
    assert 15_000 < uses["messages"][1] < 20_000


async def test_a_sound_store_has_no_faults_and_passes_the_quick_look(store: SqliteStore) -> None:
    await _fill(store)
    await store.create(SessionRecord("fork", fork_of="s0", fork_at=4))
    await store.create(SessionRecord("deep", fork_of="fork", fork_at=2))
    await store.delete("s0")
    assert store.administration.check() == []
    store.administration.probe()


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        ("UPDATE messages SET digest = 0 WHERE position = 2", "messages, history 1, message m3", "differs from"),
        ("UPDATE sessions SET name = 'other'", "sessions, s0", "differs from the written row"),
        ("UPDATE histories SET shared = 7", "histories, 1", "differs from the written row"),
        ("UPDATE deliveries SET event = '{'", "deliveries, ", "is not JSON"),
        ("UPDATE trigger_states SET value = ''", "trigger_states, t n", "is not JSON"),
        ("UPDATE documents SET version = 7", "documents, issues, 1", "differs from the written row"),
        ("UPDATE documents SET data = replace(data, 'a', 'b')", "documents, issues, 1", "differs from"),
        ("DELETE FROM messages WHERE position IN (1, 9)", "session s0", "2 of its messages are missing"),
    ],
)
async def test_each_fault_is_found_with_its_place_and_a_remedy(
    change: str, where: str, message: str, store: SqliteStore, path: Path
) -> None:
    await _fill(store, 1)
    await store.enqueue("/p", "queue", "t", TriggerEvent(TriggerType.CUSTOM, "test", state={"n": 1}))
    await store.write_documents([DocumentChange("/p", "issues", "1", {"title": "a"})])
    _execute(path, change)
    faults = store.administration.check()
    [fault] = [each for each in faults if each.where.startswith(where) and each.message.startswith(message)]
    assert "amplifier s" in fault.remedy


def test_a_file_that_does_not_open_is_a_fault_and_no_error(administration: SqliteAdministration, path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)
    [fault] = administration.check()
    assert (fault.where, "is not a SQLite database" in fault.message) == ("file", True)


async def test_a_check_rebuilds_indexes_when_it_is_asked_to(path: Path, administration: SqliteAdministration) -> None:
    store = open_sqlite({"path": path})
    await _fill(store)
    await store.close()
    [(root,)] = _execute(path, "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_messages_1'")
    content = bytearray(path.read_bytes())
    content[root * 4096 - 8 : root * 4096] = bytes(8)
    path.write_bytes(content)
    assert administration.check() != []
    assert administration.check(repair=True) == []
    assert administration.check() == []


async def test_a_backup_goes_into_the_folder_of_backups_and_the_newest_are_kept(store: SqliteStore, path: Path) -> None:
    await _fill(store)
    made = [store.administration.backup(keep=2) for _ in range(4)]
    assert store.administration.backups() == [made[3], made[2]]
    ahead = made[3].rename(made[3].with_name(f"{path.stem}-29991231T000000.000000Z.db"))  # by a clock that was wrong
    assert store.administration.backups() == [made[2], ahead]
    ahead.rename(made[3])
    assert made[3].parent == path.parent / "backups"
    assert stat.S_IMODE(made[3].stat().st_mode) == 0o600
    assert stat.S_IMODE(made[3].parent.stat().st_mode) == 0o700
    assert [each.name for each in made[3].parent.iterdir() if each.name.startswith(".")] == []
    copy = open_sqlite({"path": made[3]})
    assert len(await copy.sessions()) == 3
    await copy.close()


WRITING = """
async def main():
    store = open_sqlite({"path": sys.argv[1]})
    await store.create(SessionRecord("s"))
    say("ready")
    for at in range(100_000):
        await store.append("s", [{"n": at, "content": "x" * 300}], at=at)

asyncio.run(main())
"""


async def test_a_backup_of_a_store_that_is_written_to_is_a_whole_one(
    path: Path, start: Start, administration: SqliteAdministration
) -> None:
    process = start(WRITING, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(3):
        made = administration.backup()
        assert administer_sqlite({"path": made}).check() == []
    assert process.poll() is None


async def test_a_backup_is_restored_and_the_replaced_store_is_kept(
    path: Path, administration: SqliteAdministration
) -> None:
    store = open_sqlite({"path": path})
    await _fill(store, 2)
    backup = store.administration.backup()
    await store.delete("s0")
    await store.create(SessionRecord("later"))
    await store.close()
    kept = administration.restore()
    for file, ids in ((path, {"s0", "s1"}), (kept, {"s1", "later"})):
        store = open_sqlite({"path": file})
        assert {record.session_id for record in await store.sessions()} == ids
        await store.close()
    assert backup.exists()
    assert kept.name.startswith("store.db.replaced-")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a file")
async def test_the_processes_that_use_a_store_are_named(path: Path, administration: SqliteAdministration) -> None:
    store = open_sqlite({"path": path})
    await _fill(store, 1)
    administration.backup()
    await store.close()
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); print(db.execute('SELECT 1 FROM sessions')); input()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        with pytest.raises(StoreUnavailable, match=rf"is in use by process {reader.pid} \({sys.executable} -c "):
            administration.restore()
        reader.communicate("\n")
    administration.restore()


async def test_a_store_that_is_in_use_is_not_replaced(store: SqliteStore, path: Path) -> None:
    await _fill(store)
    store.administration.backup()
    before = path.stat().st_ino
    with pytest.raises(StoreUnavailable, match="is in use. Stop everything that uses it"):
        administer_sqlite({"path": path}).restore()
    assert path.stat().st_ino == before
    assert await store.append("s0", [{}], at=10) == 11


@pytest.mark.parametrize("content", [b"", b"no database at all" * 400], ids=["empty", "text"])
async def test_what_is_no_store_is_not_restored(
    content: bytes, path: Path, administration: SqliteAdministration
) -> None:
    await open_sqlite({"path": path}).close()
    before = path.read_bytes()
    bad = path.with_name("bad.db")
    bad.write_bytes(content)
    with pytest.raises(StoreDamaged):
        administration.restore(bad)
    with pytest.raises(BackupNotFound, match=r"has no backup in .*backups\. Name one"):
        administration.restore()
    with pytest.raises(BackupNotFound, match="is not a file"):
        administration.restore(path.with_name("missing.db"))
    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == ["bad.db", "store.db"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "CREATE TRIGGER mine AFTER INSERT ON deliveries BEGIN UPDATE deliveries SET state = 'completed'; END",
            "has trigger 'mine', which no store has",
        ),
        ("CREATE VIEW mine AS SELECT 1", "has view 'mine', which no store has"),
        (
            "DROP INDEX sessions_by_time; CREATE VIEW sessions_by_time AS SELECT 1",
            "has view 'sessions_by_time', which no store has",
        ),
        ("ALTER TABLE events ADD COLUMN mine", "has no table 'events' as a store has it"),
        (
            "DROP TABLE messages; CREATE VIEW messages AS SELECT 1 AS history, 1 AS position, '' AS body, 1 AS digest",
            "has view 'messages', which no store has",
        ),
    ],
)
async def test_what_no_store_has_is_not_restored_and_a_fault_of_a_store(
    change: str, told: str, path: Path, administration: SqliteAdministration
) -> None:
    await open_sqlite({"path": path}).close()
    before = path.read_bytes()
    backup = administration.backup()
    with closing(sqlite3.connect(backup)) as db:
        db.executescript(f"{change}; ANALYZE; CREATE TABLE notes (text); CREATE INDEX notes_by_text ON notes (text)")
    with pytest.raises(StoreDamaged, match=rf"{backup}: {told}\. Restore another backup"):
        administration.restore(backup)
    assert path.read_bytes() == before
    assert told in [fault.message for fault in administer_sqlite({"path": backup}).check()]


async def test_a_backup_without_an_index_of_search_and_one_with_foreign_indexes_are_restored_with_those_of_a_store(
    path: Path, administration: SqliteAdministration, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_sqlite({"path": path})
    await _fill(store, 1, "word")
    await store.write_documents([DocumentChange("/p", "notes", "a", {"text": "first"}, 0, ("text",))])
    await store.close()
    named = """SELECT group_concat(sql) FROM (SELECT * FROM sqlite_master
        WHERE (type = 'index' OR name LIKE '%_index%') ORDER BY name)"""
    usual = _execute(path, named)
    backup = administration.backup()
    virtual = (f"DROP TABLE {name}_index" for name in ("document", "message", "session", "word"))
    _execute(
        backup,
        *virtual,
        "DROP INDEX deliveries_once",
        "CREATE INDEX deliveries_once ON deliveries (queue)",
        "DROP INDEX received_once",
        "CREATE UNIQUE INDEX strict ON deliveries (state)",
        "CREATE INDEX failing ON sessions (json('{')) WHERE id > 100",
        "CREATE TABLE message_index (words)",
        "CREATE VIRTUAL TABLE session_index USING fts5 (other)",
    )
    backed_up = administer_sqlite({"path": backup})
    told = {(each.message, each.remedy) for each in backed_up.check()}
    remedy = "rebuild the indexes: amplifier store check --repair"
    lacking = ["table 'document_index'", "table 'message_index'", "table 'session_index'", "table 'word_index'"]
    lacking += ["index 'deliveries_once'", "index 'received_once'"]
    drop = "drop it: amplifier store check --repair"
    foreign = [(f"has index '{name}', which no store has", drop) for name in ("strict", "failing")]
    assert told == {*foreign, *((f"has no {each} as a store has it", remedy) for each in lacking)}
    administration.restore(backup)
    assert _execute(path, named) == usual
    assert administration.check() == []
    store = open_sqlite({"path": path})
    assert len(await store.search_documents("/p", "notes", "first")) == 1
    assert len((await store.search_messages("word")).matches) == 10
    await store.close()
    said = "the index '{}', which no store has, is dropped: it may refuse new rows"
    dropped = [said.format("strict"), said.format("failing")]
    assert caplog.messages == dropped
    assert backed_up.check(repair=True) == []
    assert _execute(backup, named) == usual
    assert caplog.messages == dropped * 2


def test_an_index_of_ones_own_that_refuses_no_row_is_no_fault_and_stays(
    path: Path, administration: SqliteAdministration, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(open_sqlite({"path": path}).close())
    made = 'CREATE INDEX "my report" ON sessions (created DESC, "name" COLLATE NOCASE)'
    _execute(path, made, "DROP INDEX deliveries_once")
    [lacking] = administration.check()
    assert lacking.message == "has no index 'deliveries_once' as a store has it"
    assert administration.check(repair=True) == []
    administration.restore(administration.backup())
    assert _execute(path, "SELECT sql FROM sqlite_master WHERE name = 'my report'") == [(made,)]
    assert administration.check() == []
    assert caplog.messages == []


@pytest.mark.parametrize(
    "index",
    [
        "UNIQUE INDEX own ON sessions (name)",
        "INDEX own ON sessions (name) WHERE name > 'a'",
        "INDEX own ON sessions (lower(name))",
        "INDEX own ON sessions (name COLLATE own)",
    ],
)
def test_an_index_of_ones_own_that_may_refuse_a_row_is_dropped(
    path: Path, administration: SqliteAdministration, caplog: pytest.LogCaptureFixture, index: str
) -> None:
    asyncio.run(open_sqlite({"path": path}).close())
    with closing(sqlite3.connect(path)) as db:
        db.create_collation("own", lambda one, other: (one > other) - (one < other))
        db.execute(f"CREATE {index}")
    assert "has index 'own', which no store has" in [each.message for each in administration.check()]
    assert administration.check(repair=True) == []
    assert caplog.messages == ["the index 'own', which no store has, is dropped: it may refuse new rows"]


async def test_an_index_on_a_function_that_is_not_there_is_told_and_a_repair_drops_it(
    path: Path, administration: SqliteAdministration
) -> None:
    store = open_sqlite({"path": path})
    await _fill(store, 1, "word")
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.create_function("mine", 1, str, deterministic=True)
        db.execute("CREATE INDEX by_mine ON sessions (mine(name))")
    backup = path.with_name("copy.db")
    shutil.copy(path, backup)
    told = r"copy\.db: has an index or a column of another program \(unknown function: mine\(\)\)\. Drop it .* --repair"
    with pytest.raises(StoreUnavailable, match=told):
        administration.restore(backup)
    assert administration.check(repair=True) == []
    await open_sqlite({"path": path}).close()


async def test_a_backup_whose_rows_an_index_refuses_is_told(path: Path, administration: SqliteAdministration) -> None:
    await open_sqlite({"path": path}).close()
    backup = administration.backup()
    twice = "INSERT INTO received (origin, event_id, sequence, at) VALUES ('a', 'b', 1, 1), ('a', 'b', 2, 1)"
    _execute(backup, "DROP INDEX received_once", twice)
    with pytest.raises(StoreDamaged, match=r"has a row twice \(.*received.*\)\. Restore another backup"):
        administration.restore(backup)


async def test_a_table_of_an_earlier_version_without_rowids_is_restored(
    path: Path, administration: SqliteAdministration
) -> None:
    await open_sqlite({"path": path}).close()
    backup = administration.backup()
    [(made,)] = _execute(backup, "SELECT sql FROM sqlite_master WHERE name = 'trigger_states'")
    _execute(backup, "DROP TABLE trigger_states", f"{made} WITHOUT ROWID")
    administration.restore(backup)
    assert administration.check() == []


async def test_a_restore_tells_of_rows_that_are_not_as_they_were_written(
    path: Path, administration: SqliteAdministration, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_sqlite({"path": path})
    await _fill(store, 1)
    backup = store.administration.backup()
    await store.close()
    with closing(sqlite3.connect(backup)) as db:
        db.execute("UPDATE messages SET body = '{}'")
        db.commit()
    administration.restore(backup)
    [told] = caplog.messages
    assert told.startswith(f"{path}: has faults (messages, history 1, message m1: differs from the written row).")


async def test_the_losses_of_a_missing_backup_are_unknown_and_it_stays_missing(
    path: Path, administration: SqliteAdministration
) -> None:
    await open_sqlite({"path": path}).close()
    assert administration.losses(path.with_name("missing.db")) is None
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_a_backup_of_a_newer_version_is_named_and_not_restored(
    path: Path, administration: SqliteAdministration
) -> None:
    await open_sqlite({"path": path}).close()
    backup = administration.backup()
    with closing(sqlite3.connect(backup)) as db:
        db.execute("PRAGMA user_version = 999")
    with pytest.raises(StoreConflict, match=rf"{re.escape(str(backup))}: .*newer version \(schema 999"):
        administration.restore()


async def test_the_log_of_a_damaged_store_is_not_written_into_the_restored_one(
    path: Path, administration: SqliteAdministration
) -> None:
    store = open_sqlite({"path": path})
    await _fill(store)
    backup = store.administration.backup()
    await store.close()
    path.write_bytes(bytes(4096) + path.read_bytes()[4096:])
    path.with_name("store.db-wal").write_bytes(b"no log at all" * 1000)
    kept = administration.restore(backup)
    assert kept.read_bytes()[:4096] == bytes(4096)
    assert not path.with_name("store.db-wal").exists()
    again = open_sqlite({"path": path})
    assert len(await again.sessions()) == 3
    await again.close()


async def test_room_freed_by_a_purge_is_given_back_beside_a_writer(store: SqliteStore, path: Path) -> None:
    for number in range(30):
        event = TriggerEvent(TriggerType.CUSTOM, "test", data={"text": "y" * 40_000})
        await store.enqueue("/p", "queue", f"t{number}", event, refused="too many")
    await store.purge(before=datetime.now(UTC) + timedelta(days=1))
    compacted = store.administration.compact()
    assert compacted.before > 1_200_000
    assert (path.stat().st_size < 300_000, compacted.free) == (True, 0)
    assert await store.deliveries() == []
    assert store.administration.check() == []


async def test_much_room_is_given_back_by_several_calls(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_storage_sqlite.administration.SECONDS", 0.0)
    for number in range(80):
        event = TriggerEvent(TriggerType.CUSTOM, "test", data={"text": "y" * 40_000})
        await store.enqueue("/p", "queue", f"t{number}", event, refused="too many")
    await store.purge(before=datetime.now(UTC) + timedelta(days=1))
    steps = list(compactions(store.administration))
    assert len(steps) > 2
    assert all(earlier.after > later.after for earlier, later in pairwise(steps))
    assert (path.stat().st_size < 300_000, steps[-1].free) == (True, 0)


async def test_a_file_of_an_older_version_is_compacted_as_a_whole(path: Path) -> None:
    store = open_sqlite({"path": path})
    await _fill(store, 20, "x" * 5000)
    await store.close()
    _execute(path, "PRAGMA auto_vacuum = NONE", "VACUUM", "DELETE FROM messages WHERE position > 0")
    administration = administer_sqlite({"path": path})
    partly = administration.compact()
    assert partly.free > 900_000
    whole = administration.compact(wait=True)
    assert (whole.after < 400_000, whole.free) == (True, 0)
    assert _execute(path, "PRAGMA auto_vacuum") == [(2,)]


async def test_a_file_that_became_damaged_fails_the_quick_look(store: SqliteStore, path: Path) -> None:
    await _fill(store)
    store.administration.compact()
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096 * 8)
    with pytest.raises(StoreDamaged):
        store.administration.probe()


async def test_a_restore_knows_what_it_would_lose(path: Path, administration: SqliteAdministration) -> None:
    store = open_sqlite({"path": path})
    await _fill(store, 2)
    event = TriggerEvent(TriggerType.CUSTOM, "x")
    for _ in range(3):
        await store.enqueue("/p", "queue", "t", event)
    backup = administration.backup()
    assert administration.losses(backup) == RestoreLosses(0, 0, 0)
    for _ in range(2):
        claimed = await store.claim("/p", "queue", owner="me", lease=60.0, session_id="s0")
        assert claimed is not None
        await store.commit(claimed)
    await store.enqueue("/p", "queue", "t", event)
    await store.create(SessionRecord("later"))
    await store.append("s0", [{}], at=10)
    await store.delete("s1")
    await store.close()
    assert administration.losses(backup) == RestoreLosses(handled=2, waiting=1, sessions=2, returning=1)
    assert administration.losses(path.with_name("missing.db")) is None
    before = sorted(path.parent.rglob("*"))
    administration.losses(backup)
    assert sorted(path.parent.rglob("*")) == before


def test_the_losses_are_known_for_a_backup_of_any_earlier_version(path: Path, tmp_path: Path) -> None:
    asyncio.run(open_sqlite({"path": path}).close())
    for version in range(1, len(MIGRATIONS)):
        old = tmp_path / f"{version}.db"
        with closing(sqlite3.connect(old, isolation_level=None)) as db:
            upgrade(db, stop=version)
        assert administer_sqlite({"path": path}).losses(old) == RestoreLosses(0, 0, 0), version
