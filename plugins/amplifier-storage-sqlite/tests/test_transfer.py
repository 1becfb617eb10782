"""Copy everything of a file into another one: nothing is lost, doubled or shared, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import store_transfer
from amplifier_core.errors import StoreConflict, StoreDamaged, StoreUnavailable
from amplifier_core.store_transfer import Copied, Progress, copy_store
from amplifier_storage_sqlite import administer_sqlite, open_sqlite, transfer_sqlite
from amplifier_storage_sqlite.transfer import KINDS
from tests.everything import describe, fill

if TYPE_CHECKING:
    from .conftest import Start

KILLS = int(os.environ.get("KILLS", "4"))

_SPANS = ("message_spans", "message_projects")
_PARTS = ("message_words", "deleted_messages", "word_cursor", "session_texts")
MADE_ANEW = {
    **{key: dict.fromkeys(("low", "high", "listed", "history", "project"), "") for key in _SPANS},
    **{key: dict.fromkeys(("id", "word", "message", "after", "text", "marked"), "") for key in _PARTS},
    "delivery_counts": dict.fromkeys(("project", "queue", "trigger", "state", "count"), "counted as deliveries arrive"),
    "sessions": dict.fromkeys(("recent", "listed"), "each is listed under the time of its last change"),
    "document_texts": {"words": "the words of its document", "id": "a number in the order of arrival"},
    "deliveries": {"lease_until": "a claim ends with the copy", **dict.fromkeys(("event_id", "cause"), "of its event")},
    "triggers": {"id": "a number for the name"},
    "received": {"id": "a number in the order of arrival", "sequence": "that of its event"},
}
"""Columns that do not move, and why; `digest` is the checksum of its row."""

COPY_AND_DIE = """
import random
from amplifier_core import store_transfer
from amplifier_storage_sqlite import transfer_sqlite

source, target, steps = sys.argv[1:]
store_transfer.PAGE_ROWS = 7
new = transfer_sqlite({"path": target})
left = int(steps)

def die():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

import_rows = new.import_rows

def import_and_die(*given, **state):
    if new._db is not None:
        new._db.set_progress_handler(die, 50)
    import_rows(*given, **state)

new.import_rows = import_and_die
store_transfer.copy_store(transfer_sqlite({"path": source}), new)
"""

COPY_AT_ONCE = """
from amplifier_core import store_transfer
from amplifier_core.errors import StoreConflict
from amplifier_storage_sqlite import transfer_sqlite

store_transfer.PAGE_ROWS = 3
say("ready")
sys.stdin.readline()
try:
    store_transfer.copy_store(*[transfer_sqlite({"path": path}) for path in sys.argv[1:]])
    say("copied")
except StoreConflict as error:
    say(error)
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one of everything, and messages set aside by a repair."""
    path = tmp_path_factory.mktemp("filled") / "store.db"

    async def make() -> None:
        store = open_sqlite({"path": path})
        await fill(store)
        execute(path, "UPDATE messages SET body = '{}' WHERE position = 58")
        assert len(await store.repair("root")) == 1
        await store.close()

    asyncio.run(make())
    return path


@pytest.fixture
def full(filled: Path, path: Path) -> Path:
    """A file of its own for a test."""
    return Path(shutil.copy(filled, path))


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_transfer, "PAGE_ROWS", 7)


def copy(source: Path, target: Path, notify: Any = lambda progress: None) -> Copied:
    with (
        closing(transfer_sqlite({"path": source})) as old,
        closing(transfer_sqlite({"path": target})) as new,
    ):
        return copy_store(old, new, notify)


async def described(path: Path) -> dict[str, Any]:
    store = open_sqlite({"path": path})
    told = await describe(store)
    await store.close()
    return told


def faults(path: Path) -> list[str]:
    return [f"{fault.where}: {fault.message}" for fault in administer_sqlite({"path": path}).check()]


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def interrupt_at(pages: int) -> Any:
    """Return a callback that interrupts the copy of a page."""

    def notify(progress: Progress) -> None:
        nonlocal pages
        pages -= progress.step == "copy"
        if not pages:
            raise KeyboardInterrupt

    return notify


async def test_everything_arrives_and_the_copy_behaves_as_its_source(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "copy.db"
    copied = copy(full, target)
    assert {kind for kind, total in copied.totals.items() if not total.rows} == set()
    assert (copied.left_out, copied.was_there) == ((), False)
    assert faults(target) == faults(full) != []
    assert target.stat().st_mode & 0o777 == 0o600
    assert await described(target) == await described(full)


def test_shared_messages_are_copied_once(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    copied = copy(full, target)
    for path in (full, target):
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM messages").fetchone()[0] == copied.totals["messages"].rows == 63


def test_each_column_of_each_table_is_carried_or_made_anew(full: Path) -> None:
    carried: dict[str, set[str]] = {"sqlite_sequence": {"name", "seq"}, "triggers": {"project", "trigger"}}
    for kind in KINDS.values():
        carried.setdefault(kind.table.partition(" ")[0], set()).update(kind.fields)
    with closing(sqlite3.connect(full)) as db:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%_index%'"
        for (table,) in db.execute(listed).fetchall():
            columns = {column[1] for column in db.execute(f"PRAGMA table_info({table})")}
            missing = columns - carried.get(table, set()) - MADE_ANEW.get(table, {}).keys() - {"digest"}
            assert missing == set(), f"{table} is not copied: name its columns in KINDS"


def test_a_copy_made_before_is_recognised(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    first = copy(full, target)
    again = copy(full, target)
    assert (again.was_there, again.totals) == (True, first.totals)


def test_the_source_is_not_written(full: Path, tmp_path: Path) -> None:
    before = full.read_bytes()
    copy(full, tmp_path / "copy.db")
    assert full.read_bytes() == before


async def test_an_interrupted_copy_goes_on_at_any_page(full: Path, tmp_path: Path) -> None:
    target, interruptions = tmp_path / "copy.db", 0
    while True:
        try:
            copied = copy(full, target, interrupt_at(2))
            break
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions > 10
    assert copied.totals == copy(full, tmp_path / "other.db").totals
    assert await described(target) == await described(full)


async def test_a_copy_killed_at_any_moment_goes_on(full: Path, tmp_path: Path, start: Start) -> None:
    chosen = random.Random(7)
    target = tmp_path / "copy.db"
    ends = []
    for _ in range(KILLS):
        process = start(COPY_AND_DIE, full, target, chosen.randint(1, 400))
        process.communicate()
        ends.append(process.returncode)
        if process.returncode == 0:
            target = tmp_path / f"copy-{len(ends)}.db"
    assert set(ends) <= {0, -signal.SIGKILL}
    assert -signal.SIGKILL in ends
    copied = copy(full, target)
    assert copied.totals == copy(full, tmp_path / "other.db").totals
    assert faults(target) == faults(full)


def test_of_two_copies_at_once_one_is_refused_and_nothing_doubles(full: Path, tmp_path: Path, start: Start) -> None:
    target = tmp_path / "copy.db"
    processes = [start(COPY_AT_ONCE, full, target) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate()[0].strip() for process in processes]
    assert "copied" in told
    refused = ("another process copies into it", "is not empty")
    assert [each for each in told if each != "copied" and not any(why in each for why in refused)] == []
    assert copy(full, target).was_there


def test_the_slower_of_two_copies_is_told(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"

    def overtake(progress: Progress) -> None:
        if progress.step == "copy" and progress.kind == "messages" and progress.rows == 14:
            copy(full, target)

    with pytest.raises(StoreConflict, match="another process copies into it"):
        copy(full, target, overtake)
    assert copy(full, target).was_there


def test_a_full_disk_stops_the_copy_and_more_room_lets_it_go_on(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with pytest.raises(KeyboardInterrupt):
        copy(full, target, interrupt_at(2))
    with closing(transfer_sqlite({"path": full})) as old, closing(transfer_sqlite({"path": target})) as new:
        db = new._connection()
        [(pages,)] = db.execute("PRAGMA page_count").fetchall()
        db.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            copy_store(old, new)
        db.execute("PRAGMA max_page_count = 100000").fetchall()
        assert not copy_store(old, new).was_there


async def test_a_store_that_holds_anything_else_takes_no_copy(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    store = open_sqlite({"path": target})
    await store.save_trigger_state("/p", "timer", {"n": 1})
    await store.close()
    before = target.read_bytes()
    with pytest.raises(StoreConflict, match="is not empty, and holds no copy of this store"):
        copy(full, target)
    assert target.read_bytes() == before


def test_a_source_that_has_changed_since_is_refused(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with pytest.raises(KeyboardInterrupt):
        copy(full, target, interrupt_at(5))
    execute(full, "UPDATE deliveries SET reason = 'changed' WHERE id = 1")
    with pytest.raises(StoreConflict, match=r"unfinished copy of another store, or this one has changed since"):
        copy(full, target)


@pytest.mark.parametrize("statement", ["UPDATE events SET name = 'x'", "DELETE FROM events", "VACUUM"])
def test_a_store_written_during_the_copy_is_noticed(full: Path, tmp_path: Path, statement: str) -> None:
    target = tmp_path / "copy.db"

    def write(progress: Progress) -> None:
        if progress.step == "copy" and progress.kind == "messages" and progress.rows == 14:
            with closing(sqlite3.connect(full, isolation_level=None)) as db:
                db.execute(statement)

    if statement == "VACUUM":
        assert not copy(full, target, write).was_there  # it changes no row
        return
    with pytest.raises(StoreConflict, match="somebody wrote one of them during the copy"):
        copy(full, target, write)
    with pytest.raises(StoreConflict, match="has changed since"):
        copy(full, target)


def test_an_unfinished_copy_is_no_store(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with pytest.raises(KeyboardInterrupt):
        copy(full, target, interrupt_at(5))
    with pytest.raises(StoreUnavailable, match="holds an unfinished copy. Finish it with: amplifier store copy FROM"):
        open_sqlite({"path": target})
    with pytest.raises(StoreConflict, match="holds an unfinished copy itself"):
        copy(target, tmp_path / "next.db")
    copy(full, target)
    open_sqlite({"path": target})._close()


def test_a_source_that_is_not_there_is_not_made(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is not there"):
        copy(path, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("table", ["histories", "sessions", "documents"])
def test_a_damaged_row_is_not_copied(full: Path, tmp_path: Path, table: str) -> None:
    execute(full, f"UPDATE {table} SET digest = digest + 1")
    with pytest.raises(StoreDamaged, match=f"a row of {table} differs from the written row"):
        copy(full, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_target_removed_during_the_copy_is_said(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"

    def remove(progress: Progress) -> None:
        if progress.step == "copy" and progress.kind == "sessions":
            target.unlink(missing_ok=True)

    with pytest.raises(StoreUnavailable, match="was removed while in use"):
        copy(full, target, remove)


@pytest.mark.parametrize("content", [b"Dear diary, " * 1000, b""], ids=["text", "empty"])
def test_a_file_that_is_no_store_is_left_alone(full: Path, tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(content)
    other.chmod(0o644)
    for source, target in ((full, other), (other, tmp_path / "copy.db")):
        with pytest.raises(StoreDamaged, match=r"other\.db: is "):
            copy(source, target)
    assert (other.read_bytes(), other.stat().st_mode & 0o777) == (content, 0o644)


def test_the_database_of_another_program_is_left_alone(full: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    execute(other, "CREATE TABLE recipes (name)")
    content = other.read_bytes()
    for source, target in ((full, other), (other, tmp_path / "copy.db")):
        with pytest.raises(StoreDamaged, match="is a database of another program"):
            copy(source, target)
    assert other.read_bytes() == content


@pytest.mark.parametrize("version", [5, 11])
def test_a_store_of_an_older_version_is_copied(tmp_path: Path, version: int) -> None:
    old = tmp_path / "old.db"
    old.write_bytes(gzip.decompress((Path(__file__).parent / "stores" / f"version{version}.db.gz").read_bytes()))
    target = tmp_path / "copy.db"
    assert sum(total.rows for total in copy(old, target).totals.values()) > 5
    assert faults(target) == []
