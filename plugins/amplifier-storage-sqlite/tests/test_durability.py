"""Kill and compete: acknowledged writes are there."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import open_sqlite
from amplifier_storage_sqlite.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen

    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start

pytestmark = pytest.mark.slow

APPEND_AND_DIE = """
async def main(path):
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    say(await store.append("s", [{"content": "kept"}], at=0))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1]))
"""

APPEND_FOR_EVER = """
async def main(path):
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    count = 0
    while True:
        count = await store.append("s", [{"n": count, "text": "x" * 5000}, {"n": count + 1}], at=count)
        say(count)

asyncio.run(main(sys.argv[1]))
"""

CLAIM_A_HUNDRED = """
async def main(path, name):
    store = open_sqlite({"path": path})
    say("ready")
    sys.stdin.readline()
    for _ in range(100):
        delivery = await store.claim("/p", "queue", owner=name, lease=600, session_id=name)
        say(delivery.delivery_id, delivery.epoch)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""

OPEN_AND_CREATE = """
async def main(path, name):
    say("ready")
    sys.stdin.readline()
    store = open_sqlite({"path": path})
    await store.create(SessionRecord(name))
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def _read_line(process: Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _outputs_from_one_start(processes: list[Popen[str]]) -> list[str]:
    assert [_read_line(process) for process in processes] == ["ready"] * len(processes)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


async def test_an_acknowledged_append_survives_kill_9(path: Path, start: Start) -> None:
    process = start(APPEND_AND_DIE, path)
    assert process.communicate()[0] == "1\n"
    assert process.returncode == -signal.SIGKILL
    store = open_sqlite({"path": path})
    assert await store.read("s") == [{"content": "kept"}]
    await store.close()


async def test_kill_9_in_the_middle_loses_nothing_acknowledged_and_no_half_turn(path: Path, start: Start) -> None:
    process = start(APPEND_FOR_EVER, path)
    for _ in range(20):
        said = _read_line(process)
    process.kill()
    assert process.stdout is not None
    acknowledged = int([said, *process.stdout.read().split()][-1])
    store = open_sqlite({"path": path})
    numbers = [message["n"] for message in await store.read("s")]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) in (acknowledged, acknowledged + 2)
    assert await store.append("s", [{"n": -1}], at=len(numbers)) == len(numbers) + 1
    await store.close()


async def test_two_processes_never_claim_one_delivery(path: Path, store: SqliteStore, start: Start) -> None:
    enqueued = set()
    for _ in range(200):
        delivery = await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "test"))
        assert delivery is not None
        enqueued.add(delivery.delivery_id)
    outputs = _outputs_from_one_start([start(CLAIM_A_HUNDRED, path, name) for name in ("one", "two")])
    claimed = [line.split() for output in outputs for line in output.splitlines()]
    assert len(claimed) == 200
    assert {delivery_id for delivery_id, _ in claimed} == enqueued
    assert {epoch for _, epoch in claimed} == {"1"}


async def test_processes_that_make_the_store_at_once_share_one(path: Path, start: Start) -> None:
    _outputs_from_one_start([start(OPEN_AND_CREATE, path, f"s{number}") for number in range(4)])
    store = open_sqlite({"path": path})
    assert sorted(record.session_id for record in await store.sessions()) == ["s0", "s1", "s2", "s3"]
    await store.close()
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]


async def test_what_one_process_wrote_another_reads_at_once(path: Path, store: SqliteStore) -> None:
    other = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    assert await other.append("s", [{"n": 0}], at=0) == 1
    assert await store.read("s") == [{"n": 0}]
    await other.close()


def test_every_commit_is_flushed_to_the_disk(path: Path) -> None:
    db = open_store(path, 1)
    pragmas = ("journal_mode", "synchronous", "foreign_keys")
    assert [db.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in pragmas] == ["wal", 2, 1], "2 is FULL"
    db.close()
