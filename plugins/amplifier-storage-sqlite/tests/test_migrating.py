"""Check that an older file is migrated by whoever has it alone, after a backup, and never under another process."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import StoreConflict, StoreDamaged, StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import administer_sqlite, open_sqlite, schema
from amplifier_storage_sqlite.faults import IndexDamage, store_error

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start, Unpack

USE = """
import sqlite3
db = sqlite3.connect(sys.argv[1])
say(*db.execute("PRAGMA journal_mode = WAL").fetchone(), *db.execute("SELECT count(*) FROM sessions").fetchone())
sys.stdin.read()
"""
OPEN = """
sys.stdin.readline()
store = open_sqlite({"path": sys.argv[1]})
say(len(asyncio.run(store.sessions())))
"""
NEWER = len(schema.MIGRATIONS) + 1


def _version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


async def test_a_store_is_not_migrated_under_a_process_that_has_it_open(unpack: Unpack, start: Start) -> None:
    path = unpack(15)
    user = start(USE, path)
    assert user.stdout is not None
    assert user.stdout.readline().startswith("wal")
    opened = f"schema 15, this one makes it {len(schema.MIGRATIONS)}.* process {user.pid} .*amplifier stop --everything"
    with pytest.raises(StoreUnavailable, match=opened):
        open_sqlite({"path": path, "busy_timeout": 0.1})
    assert (_version(path), administer_sqlite({"path": path}).backups()) == (15, [])
    user.communicate()
    await open_sqlite({"path": path}).close()
    assert _version(path) == len(schema.MIGRATIONS)


async def test_a_store_is_not_migrated_under_a_connection_of_the_same_process(unpack: Unpack) -> None:
    path = unpack(15)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("SELECT count(*) FROM sessions").fetchone()
        with pytest.raises(StoreUnavailable, match="is open in another process"):
            open_sqlite({"path": path, "busy_timeout": 0})
    assert _version(path) == 15


def test_of_processes_that_open_an_older_store_together_all_find_it_migrated(unpack: Unpack, start: Start) -> None:
    path = unpack(15)
    openers = [start(OPEN, path) for _ in range(3)]
    said = []
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    for opener in openers:
        out, _ = opener.communicate()
        said.append((opener.returncode, out))
    assert {code for code, _ in said} == {0}
    assert len({out for _, out in said}) == 1
    assert len(administer_sqlite({"path": path}).backups()) == 1


async def test_a_store_is_backed_up_before_it_is_migrated_and_daily_backups_leave_that_one(unpack: Unpack) -> None:
    path = unpack(15)
    content = path.read_bytes()
    administration = administer_sqlite({"path": path})
    await open_sqlite({"path": path}).close()
    [before] = administration.backups()
    assert before.name.endswith("Z-schema-15.db")
    assert _version(before) == 15
    made = [administration.backup(keep=1) for _ in range(2)]
    by_hand = [administration.backup(keep=1, label="by-hand") for _ in range(2)]
    assert administration.backups() == [by_hand[1], made[1], before]
    assert before.stat().st_size == len(content)
    administration.restore(before)
    assert (_version(path), _version(before)) == (len(schema.MIGRATIONS), 15)


def test_a_store_is_not_migrated_without_room_for_its_backup(unpack: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    path = unpack(15)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(StoreUnavailable, match=r"is not migrated from schema 15 .* no room .* Free 1 MB and try again"):
        open_sqlite({"path": path})
    assert _version(path) == 15


async def test_nothing_is_written_to_a_store_that_a_newer_version_has_migrated_meanwhile(
    store: SqliteStore, path: Path
) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", [{"n": 0}], at=0)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {NEWER}")
    for _ in range(2):
        with pytest.raises(StoreConflict, match=rf"newer version \(schema {NEWER}, this one knows {NEWER - 1}\)"):
            await store.append("s", [{"n": 1}], at=1)
    assert await store.read("s") == [{"n": 0}]


async def test_sessions_that_an_older_version_wrote_after_a_migration_are_listed(path: Path) -> None:
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET listed = NULL, recent = NULL")
    store = open_sqlite({"path": path})
    assert [each.session_id for each in await store.sessions(limit=1)] == ["s"]
    await store.close()


def test_the_remedy_of_a_wrong_order_is_a_repair(path: Path) -> None:
    error = store_error(path, IndexDamage("sessions are listed in a wrong order"))
    assert isinstance(error, StoreDamaged)
    assert str(error).endswith("a wrong order). Rebuild its indexes: amplifier store check --repair")
