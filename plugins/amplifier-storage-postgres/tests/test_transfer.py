"""Copy everything between a SQLite file and a PostgreSQL schema: nothing is lost or doubled, whatever happens."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from amplifier_core import store_transfer
from amplifier_core.errors import StoreConflict, StoreDamaged, StoreUnavailable
from amplifier_core.ids import BEFORE_HOST
from amplifier_core.store_transfer import Copied, Progress, StoreTransfer, copy_store, read_pages
from amplifier_foundation.cli import exits, invoke
from amplifier_storage_postgres import administer_postgres, open_postgres, transfer_postgres
from amplifier_storage_postgres.transfer import KINDS
from amplifier_storage_sqlite import open_sqlite, transfer_sqlite
from tests.everything import describe, fill

if TYPE_CHECKING:
    from tests.postgres import Postgres

    from .conftest import Start

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "3"))
MESSAGES = int(os.environ.get("MESSAGES", "60"))

MADE_ANEW = {
    "histories": {"digest"},
    "sessions": {"digest"},
    "trigger_states": {"digest"},
    "deliveries": {"lease_until", "line", "source_event", "cause"},
    "document_texts": {"id", "words", "lexemes"},
}
"""Columns that follow from others, or end with the copy."""
OF_PROCESSES = {"version", "leases", "processes", "operations", "begun", "rates"}
"""Tables about processes at work; none is at work during a copy."""
OF_SEARCHES = {"message_texts", "message_ends"}
"""Tables that searches make."""
LEFT_OUT = ("deliveries.owners", "deliveries.only_on")
"""Fields that a SQLite file does not keep."""

COPY_AND_DIE = """
import random
from amplifier_core import store_transfer
from amplifier_storage_postgres import transfer_postgres
from amplifier_storage_sqlite import transfer_sqlite

source, target, seed, whole = sys.argv[1:]
store_transfer.PAGE_ROWS = 7
chosen = random.Random(seed)
new = transfer_postgres({"dsn": target})
left = chosen.randint(1, 15)
import_rows = new.import_rows

def import_and_die(*given, **state):
    global left
    left -= 1
    if not left:
        pid = os.fork()
        if not pid:
            for _ in range(chosen.randint(0, 200_000)):
                pass
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)
    import_rows(*given, **state)

new.import_rows = import_and_die
store_transfer.copy_store(transfer_sqlite({"path": source}), new)
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with one of everything."""
    path = tmp_path_factory.mktemp("filled") / "store.db"

    async def make() -> None:
        store = open_sqlite({"path": path})
        await fill(store, MESSAGES)
        await store.close()

    asyncio.run(make())
    return path


@pytest.fixture
def full(filled: Path, tmp_path: Path) -> Path:
    """A file of its own for a test."""
    return Path(shutil.copy(filled, tmp_path / "store.db"))


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_transfer, "PAGE_ROWS", max(7, MESSAGES // 10))


def copy(source: StoreTransfer, target: StoreTransfer, notify: Any = lambda progress: None) -> Copied:
    with closing(source), closing(target):
        return copy_store(source, target, notify)


def to_postgres(path: Path, dsn: str, notify: Any = lambda progress: None) -> Copied:
    return copy(transfer_sqlite({"path": path}), transfer_postgres({"dsn": dsn}), notify)


async def described(store: Any) -> dict[str, Any]:
    told = await describe(store)
    await store.close()
    return told


def interrupt(progress: Progress) -> None:
    if progress.step == "copy" and progress.kind == "messages" and progress.rows > 20:
        raise KeyboardInterrupt


async def test_there_and_back_everything_is_the_same_and_behaves_alike(
    full: Path, database: str, tmp_path: Path
) -> None:
    back = tmp_path / "back.db"
    there = to_postgres(full, database)
    returned = copy(transfer_postgres({"dsn": database}), transfer_sqlite({"path": back}))
    assert {kind: returned.totals[kind] for kind in there.totals} == there.totals
    assert administer_postgres({"dsn": database}).check() == []
    assert (there.left_out, returned.left_out) == ((), LEFT_OUT)
    assert sum(total.rows for total in there.totals.values()) > 110
    expected = await described(open_sqlite({"path": full}))
    assert await described(open_sqlite({"path": back})) == expected
    found = await described(open_postgres({"dsn": database}))
    assert found.keys() == expected.keys()
    assert {name: (value, expected[name]) for name, value in found.items() if value != expected[name]} == {}


async def test_between_two_databases_a_shared_store_keeps_what_is_for_hosts(postgres: Postgres) -> None:
    dsns = postgres.create(), postgres.create()
    store = open_postgres({"dsn": dsns[0]})
    await fill(store)
    await store.close()
    old, new = (transfer_postgres({"dsn": dsn}) for dsn in dsns)
    copied = copy(old, new)
    assert copied.left_out == ()
    assert await described(open_postgres({"dsn": dsns[1]})) == await described(open_postgres({"dsn": dsns[0]}))


def test_each_column_of_each_table_is_carried_or_made_anew(full: Path, database: str) -> None:
    to_postgres(full, database)
    carried: dict[str, set[str]] = {}
    for kind in KINDS.values():
        carried.setdefault(kind.table, set()).update(kind.read)
    with psycopg.connect(database) as db:
        query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'amplifier'"
        for table, column in db.execute(query).fetchall():
            known = carried.get(table, set()) | MADE_ANEW.get(table, set())
            assert table in OF_PROCESSES | OF_SEARCHES or column in known, (
                f"{table}.{column} is not copied: name it in KINDS"
            )


def test_a_copy_killed_at_any_moment_goes_on(full: Path, postgres: Postgres, start: Start) -> None:
    chosen = random.Random(11)
    dsn, ends = postgres.create(), []
    for number in range(KILLS):
        process = start(COPY_AND_DIE, full, dsn, number, chosen.random())
        process.communicate()
        ends.append(process.returncode)
    assert set(ends) <= {0, -signal.SIGKILL}
    assert -signal.SIGKILL in ends
    copied = to_postgres(full, dsn)
    assert copied.totals == to_postgres(full, postgres.create()).totals
    assert to_postgres(full, dsn).was_there


def test_a_server_lost_in_the_middle_is_said_and_the_copy_goes_on(
    full: Path, postgres: Postgres, database: str
) -> None:
    def lose(progress: Progress) -> None:
        if progress.step == "copy" and progress.kind == "deliveries":
            postgres.stop()

    try:
        with pytest.raises(StoreUnavailable):
            to_postgres(full, database, lose)
    finally:
        postgres.start()
    assert not to_postgres(full, database).was_there
    assert to_postgres(full, database).was_there


def test_the_slower_of_two_copies_is_told(full: Path, database: str) -> None:
    def overtake(progress: Progress) -> None:
        if progress.step == "copy" and progress.kind == "messages" and progress.rows <= store_transfer.PAGE_ROWS:
            to_postgres(full, database)

    with pytest.raises(StoreConflict, match="another process copies into it"):
        to_postgres(full, database, overtake)
    assert to_postgres(full, database).was_there


def test_an_unfinished_copy_is_no_store(full: Path, database: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        to_postgres(full, database, interrupt)
    with pytest.raises(StoreUnavailable, match="holds an unfinished copy. Finish it with: amplifier store copy FROM"):
        open_postgres({"dsn": database})
    with pytest.raises(StoreConflict, match="holds an unfinished copy itself"):
        copy(transfer_postgres({"dsn": database}), transfer_sqlite({"path": tmp_path / "next.db"}))
    to_postgres(full, database)


async def test_a_schema_that_holds_anything_else_takes_no_copy(full: Path, database: str) -> None:
    store = open_postgres({"dsn": database})
    await store.save_trigger_state("/p", "timer", {"n": 1})
    await store.close()
    with pytest.raises(StoreConflict, match="is not empty, and holds no copy of this store"):
        to_postgres(full, database)


def test_a_schema_written_during_the_copy_is_noticed(full: Path, database: str) -> None:
    def write(progress: Progress) -> None:
        if progress.step == "copy" and progress.kind == "sessions":
            with psycopg.connect(database) as db:
                db.execute("UPDATE amplifier.messages SET body = '{}' WHERE position = 1")

    with pytest.raises(StoreConflict, match="somebody wrote one of them during the copy"):
        to_postgres(full, database, write)


async def test_the_processes_of_a_shared_store_are_its_users(database: str) -> None:
    transfer = transfer_postgres({"dsn": database})
    assert transfer.users() == []
    store = open_postgres({"dsn": database})
    await store.present(f"1-a{BEFORE_HOST}host", {"pid": 1})
    assert transfer.users() == [f"1-a{BEFORE_HOST}host"]
    await store.absent(f"1-a{BEFORE_HOST}host")
    assert transfer.users() == []
    await store.close()
    transfer.close()


def test_a_source_that_is_not_there_is_not_made(database: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is not there"):
        copy(transfer_postgres({"dsn": database}), transfer_sqlite({"path": tmp_path / "copy.db"}))
    with psycopg.connect(database) as db:
        assert db.execute("SELECT to_regnamespace('amplifier')").fetchone() == (None,)


@pytest.mark.parametrize("table", ["histories", "sessions", "documents"])
def test_a_damaged_row_is_not_copied(full: Path, database: str, tmp_path: Path, table: str) -> None:
    to_postgres(full, database)
    with psycopg.connect(database) as db:
        db.execute(f"ALTER TABLE amplifier.{table} DISABLE TRIGGER USER")
        db.execute(f"UPDATE amplifier.{table} SET digest = '1'")
    with pytest.raises(StoreDamaged, match="differs from the written row"):
        copy(transfer_postgres({"dsn": database}), transfer_sqlite({"path": tmp_path / "copy.db"}))


def test_a_damaged_message_stays_one(full: Path, database: str, tmp_path: Path) -> None:
    to_postgres(full, database)
    with psycopg.connect(database) as db:
        db.execute("UPDATE amplifier.messages SET body = '{}' WHERE position = 1")
    copied = copy(transfer_postgres({"dsn": database}), transfer_sqlite({"path": tmp_path / "copy.db"}))
    again = copy(transfer_sqlite({"path": tmp_path / "copy.db"}), transfer_sqlite({"path": tmp_path / "more.db"}))
    assert again.totals["messages"] == copied.totals["messages"]
    store = open_sqlite({"path": tmp_path / "more.db"})
    with pytest.raises(StoreDamaged, match="message m2 is not what was written"):
        store.read_sync("root")
    store._close()


def test_a_page_of_long_rows_is_short(full: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    to_postgres(full, database)
    monkeypatch.setattr(store_transfer, "PAGE_BYTES", 300)
    for transfer in (transfer_postgres({"dsn": database}), transfer_sqlite({"path": full})):
        with closing(transfer):
            pages = list(read_pages(transfer, "messages", ("position", "body")))
        assert max(len(page.rows) for page in pages) <= 4
        assert sum(len(page.rows) for page in pages) == MESSAGES + 3


def test_the_room_is_shown_with_the_tool_for_backups(
    full: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to_postgres(full, database)
    monkeypatch.setenv("AMPLIFIER_DSN", database)
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-postgres")
    assert invoke(["store", "info"]) == 0
    shown = capsys.readouterr().out
    assert "It is backed up with PostgreSQL's own tools: pg_dump " in shown
    assert "amplifier store backup" not in shown


def test_a_store_moves_back_when_its_old_file_is_moved_away(
    full: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to_postgres(full, database)
    monkeypatch.setenv("AMPLIFIER_HOME", str(full.parent))
    monkeypatch.setenv("AMPLIFIER_DSN", database)
    old = full.with_name("amplifier.db")

    async def change() -> None:
        store = open_sqlite({"path": old})
        await store.save_trigger_state("/p", "timer", {"n": 1})
        await store.close()

    asyncio.run(change())
    assert invoke(["store", "copy", "postgres", "sqlite"]) == exits.CONFLICT
    assert f"{old}: is not empty" in (told := capsys.readouterr().err)
    assert "Move it away, or copy into an empty store" in told
    old.rename(full.with_name("old.db"))
    assert invoke(["store", "copy", "postgres", "sqlite"]) == 0


def test_the_command_moves_a_store_to_postgres(
    full: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(full.parent))
    monkeypatch.setenv("AMPLIFIER_DSN", database)
    assert invoke(["store", "copy", str(full), "postgres", "--to-config", "schema=moved"]) == 0
    told = capsys.readouterr()
    assert f"{MESSAGES + 3:,}" in told.out
    value = '{"name": "storage-postgres", "config": {"schema": "moved"}}'
    assert f"Use the new one with: amplifier config set storage '{value}'\n" in told.err
    monkeypatch.delenv("AMPLIFIER_DSN")
    assert invoke(["store", "copy", str(full), "postgres"]) == exits.USAGE
    assert "the environment variable AMPLIFIER_DSN is not set" in capsys.readouterr().err
