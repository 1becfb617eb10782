"""Lose the tables of a store, and restore them: nobody goes on in another store without a word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from amplifier_core.errors import StoreDamaged, StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_postgres import administer_postgres, open_postgres
from amplifier_storage_postgres.known_stores import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_postgres.store import PostgresStore
    from tests.postgres import Postgres


def name_of(dsn: str) -> str:
    return dsn.rpartition("=")[2]


def drop(postgres: Postgres, dsn: str) -> None:
    postgres.execute("SET client_min_messages = error; DROP SCHEMA amplifier CASCADE", database=name_of(dsn))


def dump(postgres: Postgres, dsn: str) -> str:
    """Return the file of a dump, made as the README says."""
    file = str(postgres.folder / f"{name_of(dsn)}.dump")
    postgres.run("pg_dump", "--format=custom", "--schema=amplifier", "-f", file, dsn)
    return file


async def ids(store: PostgresStore) -> list[str]:
    return [each.session_id for each in await store.sessions()]


async def make(dsn: str, session_id: str, **config: str) -> None:
    """Open a store, and store one session."""
    store = open_postgres({"dsn": dsn, **config})
    await store.create(SessionRecord(session_id))
    await store.close()


async def test_a_process_writes_into_no_other_store_than_the_one_that_it_opened(
    database: str, postgres: Postgres
) -> None:
    store = open_postgres({"dsn": database})
    await store.create(SessionRecord("first"))
    drop(postgres, database)
    with pytest.raises(StoreUnavailable, match=r"gone\. Stop all hosts and restore a backup.*pg_restore"):
        await store.create(SessionRecord("second"))
    await make(database, "other")
    with pytest.raises(StoreUnavailable, match="was replaced by another store while in use"):
        await store.create(SessionRecord("third"))
    await store.close()
    assert postgres.execute("SELECT session_id FROM amplifier.sessions", database=name_of(database)) == "other"


async def test_a_restored_store_is_the_known_one_and_a_process_from_before_does_not_go_on_in_it(
    database: str, postgres: Postgres, tmp_path: Path
) -> None:
    store = open_postgres({"dsn": database, "folder": str(tmp_path)})
    await store.create(SessionRecord("first"))
    file = dump(postgres, database)
    await store.create(SessionRecord("second"))
    postgres.execute("ALTER SCHEMA amplifier RENAME TO amplifier_before", database=name_of(database))
    postgres.run("pg_restore", "--single-transaction", "-d", database, file)
    with pytest.raises(StoreUnavailable, match="was replaced by another store while in use"):
        await store.create(SessionRecord("third"))
    await store.close()
    again = open_postgres({"dsn": database, "folder": str(tmp_path)})
    assert await ids(again) == ["first"]
    await again.create(SessionRecord("third"))
    await again.close()


async def test_no_empty_store_is_made_in_the_place_of_one_that_this_machine_has_used(
    database: str, postgres: Postgres, tmp_path: Path
) -> None:
    config = {"dsn": database, "folder": str(tmp_path)}
    await make(database, "first", folder=str(tmp_path))
    drop(postgres, database)
    gone = r"its tables are gone, .*Stop all hosts and restore a backup.*remove (\S+)$"
    with pytest.raises(StoreUnavailable, match=gone) as refused:
        open_postgres(config)
    with pytest.raises(StoreUnavailable, match=gone):
        administer_postgres(config).check()
    assert (
        postgres.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'amplifier'", database=name_of(database))
        == "0"
    )

    await make(database, "other")
    with pytest.raises(StoreUnavailable, match="is another store than the one that this machine has used there"):
        open_postgres(config)
    [known] = (tmp_path / FOLDER).iterdir()
    told = re.search(gone, str(refused.value))
    assert told is not None and told[1] == str(known)
    known.unlink()
    await make(database, "new", folder=str(tmp_path))
    assert database not in known.read_text()


async def test_tables_without_an_id_get_one_and_their_version_stays(database: str, tmp_path: Path) -> None:
    config = {"dsn": database, "folder": str(tmp_path)}
    old = open_postgres(config)
    [(before,)] = await old._runner.rows("SELECT version FROM @.version")
    await old.close()
    with psycopg.connect(database) as db:
        db.execute("ALTER TABLE amplifier.version DROP COLUMN store")
    await make(database, "s", folder=str(tmp_path))
    again = open_postgres(config)
    assert await again._runner.rows("SELECT version FROM @.version") == [(before,)]
    assert await ids(again) == ["s"]
    await again.close()


@pytest.mark.parametrize("hindered", ["not the owner", "read-only", "in use"])
async def test_a_store_that_cannot_get_an_id_is_used_without_one(
    database: str, postgres: Postgres, tmp_path: Path, hindered: str
) -> None:
    await make(database, "old")
    role = f"role_{name_of(database)}"
    with psycopg.connect(database) as db:
        db.execute("ALTER TABLE amplifier.version DROP COLUMN store")
        db.execute(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA amplifier TO {role}".encode())
        for what in ("TABLES", "SEQUENCES"):
            db.execute(f"GRANT ALL ON ALL {what} IN SCHEMA amplifier TO {role}".encode())
        if hindered == "read-only":
            db.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on".encode())
    given = {"dsn": database if hindered == "in use" else database.replace("user=postgres", f"user={role}")}
    with psycopg.connect(database) as reader:
        if hindered == "in use":
            reader.execute("LOCK TABLE amplifier.version IN ACCESS SHARE MODE")  # as pg_dump does
        store = open_postgres({**given, "folder": str(tmp_path)})
        if hindered != "read-only":
            await store.create(SessionRecord("new"))
        assert await ids(store) == (["old"] if hindered == "read-only" else ["new", "old"])
        await store.close()
    assert not (tmp_path / FOLDER).exists()
    await make(database, "later", folder=str(tmp_path))
    [known] = (tmp_path / FOLDER).iterdir()
    assert known.read_text()


async def test_a_dump_from_before_stores_had_ids_is_restored(database: str, postgres: Postgres, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    await make(database, "old")
    with psycopg.connect(database) as db:
        db.execute("ALTER TABLE amplifier.version DROP COLUMN store")
    file = dump(postgres, database)
    for folder in folders:
        folder.mkdir()
        await make(database, folder.name, folder=str(folder))
    running = open_postgres({"dsn": database})
    postgres.execute("ALTER SCHEMA amplifier RENAME TO amplifier_before", database=name_of(database))
    postgres.run("pg_restore", "--single-transaction", "-d", database, file)
    with pytest.raises(StoreUnavailable, match="was replaced by another store while in use"):
        await running.create(SessionRecord("running"))
    await running.close()
    await make(database, "again", folder=str(folders[0]))
    told = r"or a backup without an id, of an earlier version, was restored, remove (\S+)$"
    with pytest.raises(StoreUnavailable, match=told):
        open_postgres({"dsn": database, "folder": str(folders[1])})
    [known] = (folders[1] / FOLDER).iterdir()
    known.unlink()
    await make(database, "second", folder=str(folders[1]))


@pytest.mark.parametrize("content", [b"", bytes(80), b"\xff\xfe\x00garbage", b"no id"])
async def test_a_damaged_memory_of_a_store_is_none(database: str, tmp_path: Path, content: bytes) -> None:
    await make(database, "first", folder=str(tmp_path))
    [known] = (tmp_path / FOLDER).iterdir()
    before = known.read_bytes()
    known.write_bytes(content)
    await make(database, "second", folder=str(tmp_path))
    assert known.read_bytes() == before


async def test_a_restore_into_a_schema_with_tables_is_said(database: str, postgres: Postgres) -> None:
    await make(database, "first")
    file = dump(postgres, database)
    drop(postgres, database)
    await make(database, "other")
    with pytest.raises(RuntimeError, match="already exists"):  # it goes on after each error
        postgres.run("pg_restore", "-d", database, file)
    two = r"has 2 rows in its table `version`, and not one, as after a restore .*pg_restore --single-transaction -d"
    for use in (open_postgres, lambda config: administer_postgres(config).check()):
        with pytest.raises(StoreDamaged, match=two):
            use({"dsn": database})
    postgres.execute("ALTER SCHEMA amplifier RENAME TO amplifier_both", database=name_of(database))
    postgres.run("pg_restore", "--single-transaction", "-d", database, file)
    store = open_postgres({"dsn": database})
    assert await ids(store) == ["first"]
    await store.close()
