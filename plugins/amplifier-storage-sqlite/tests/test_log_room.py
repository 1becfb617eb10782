"""Room in the log: commits overwrite zeros, of one process or two; nothing is lost, and the log stays short."""

from __future__ import annotations

import os
import shutil
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import log_room, open_sqlite
from amplifier_storage_sqlite.log_room import ENOUGH, LogRoom

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start

TURN = [{"text": "x" * 1000}, {"text": "y" * 1000}]

APPEND = """
async def main(path, name, turns):
    store = open_sqlite({"path": path})
    await store.create(SessionRecord(name))
    say("ready")
    sys.stdin.readline()
    for turn in range(int(turns)):
        say(await store.append(name, [{"n": turn, "text": "x" * 1000}], at=turn))
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def log_of(path: Path) -> Path:
    return path.with_name("store.db-wal")


async def test_a_commit_overwrites_room_and_no_commit_shortens_it(store: SqliteStore, path: Path) -> None:
    await store.create(SessionRecord("s"))
    lengths = []
    for turn in range(40):
        await store.append("s", TURN, at=turn * 2)
        lengths.append(log_of(path).stat().st_size)
    assert len(set(lengths)) < 10  # most commits leave the length alone
    assert lengths == sorted(lengths)
    assert await store.read("s") == TURN * 40


async def test_a_log_of_full_length_grows_no_more(store: SqliteStore, path: Path) -> None:
    await store.create(SessionRecord("s"))
    for turn in range(3):
        await store.append("s", [{"text": "x" * 1_600_000}], at=turn)
    room = LogRoom(path)
    room.keep()
    length = log_of(path).stat().st_size
    assert length >= ENOUGH
    room.keep()
    assert log_of(path).stat().st_size == length


@pytest.mark.parametrize("name", ["killed", "closed"])
async def test_what_was_acknowledged_over_zeros_is_there_afterwards(path: Path, start: Start, name: str) -> None:
    process = start(APPEND, path, name, 100)
    acknowledged = process.communicate("go\n")[0].split()[1:]
    assert acknowledged == [str(turn) for turn in range(1, 101)]
    assert process.returncode == (-signal.SIGKILL if name == "killed" else 0)
    store = open_sqlite({"path": path})
    assert [message["n"] for message in await store.read(name)] == list(range(100))
    await store.close()


async def test_a_log_of_zeros_alone_is_an_empty_one(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    """Another process may empty the log just before zeros are appended to it."""
    await store.create(SessionRecord("s"))
    await store.close()
    copy = shutil.copy(path, tmp_path / "copy.db")
    (tmp_path / "copy.db-wal").write_bytes(bytes(ENOUGH))
    again = open_sqlite({"path": copy})
    assert await again.append("s", TURN, at=0) == 2
    assert await again.read("s") == TURN
    await again.close()


async def test_two_processes_append_over_the_zeros_of_each_other(path: Path, start: Start) -> None:
    kept = open_sqlite({"path": path})  # the log is there until the last one closes
    processes = [start(APPEND, path, f"s-{number}", 150) for number in range(2)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate()[0].split()[-1] == "150"
        assert process.returncode == 0
    assert log_of(path).stat().st_size <= ENOUGH + log_room.LARGEST
    await kept.close()
    store = open_sqlite({"path": path})
    for number in range(2):
        assert [message["n"] for message in await store.read(f"s-{number}")] == list(range(150))
    await store.close()


async def test_zeros_of_another_process_are_room(store: SqliteStore, path: Path) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", TURN, at=0)
    for _ in range(2):
        await store._writer.run(lambda _: None)  # the second time, the thread has made its own room
    with log_of(path).open("ab") as log:
        log.write(bytes(100_000))
    length = log_of(path).stat().st_size
    LogRoom(path).keep()
    assert log_of(path).stat().st_size == length


async def test_a_disk_that_is_nearly_full_is_left_alone(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=1000, f_frsize=4096))
    await store.create(SessionRecord("s"))
    for turn in range(5):
        await store.append("s", TURN, at=turn * 2)
    assert log_of(path).read_bytes()[-4096:] != bytes(4096)
    assert await store.read("s") == TURN * 5


def test_without_a_log_nothing_happens(path: Path) -> None:
    LogRoom(path).keep()
    assert not log_of(path).exists()
