"""Short reads use the connection of an idle writer, wait for no writer, and leave nothing behind."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import SessionNotFound, StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import open_sqlite
from amplifier_storage_sqlite.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

TURN = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]


async def test_an_idle_writer_reads_what_it_wrote_without_another_connection(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Reader, "_connection")
    await store.create(SessionRecord("s"))
    for at in range(0, 6, 2):
        await store.append("s", TURN, at=at)
        assert (await store.get("s")).message_count == at + 2
        assert await store.read("s", at, at + 2) == TURN
    assert await store.spawned("s") == []


async def test_a_short_read_waits_for_no_writer(store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    writes, may_end = threading.Event(), threading.Event()

    def work(db: sqlite3.Connection) -> None:
        db.execute("UPDATE sessions SET name = 'unfinished'")
        writes.set()
        assert may_end.wait(20)
        raise ValueError("after a change")

    writing = asyncio.ensure_future(store._writer.run(work))
    assert await asyncio.to_thread(writes.wait, 20)
    assert ((await store.get("s")).name, await store.read("s")) == ("", [])
    may_end.set()
    with pytest.raises(ValueError, match="after a change"):
        await writing
    assert (await store.get("s")).name == ""


async def test_a_read_that_fails_keeps_no_old_state(store: SqliteStore, path: Path) -> None:
    await store.create(SessionRecord("s"))
    other = open_sqlite({"path": path})
    with pytest.raises(SessionNotFound) as failure:
        await store.get("missing")
    assert failure.value.__traceback__ is not None  # its frames are kept
    await other.append("s", TURN, at=0)
    assert (await store.get("s")).message_count == 2
    assert await store.append("s", TURN, at=2) == 4  # not "locked": it writes from the newest state
    assert await other.read("s") == [*TURN, *TURN]
    await other.close()


async def test_what_another_process_wrote_is_read_and_known(store: SqliteStore, path: Path) -> None:
    other = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    await store.append("s", TURN, at=0)
    await other.update("s", name="theirs")
    assert (await store.get("s")).name == "theirs"  # the writer's connection has seen the commit
    await store.append("s", TURN, at=2)
    assert (await other.get("s")).name == "theirs"
    assert await store.examine("s") == []
    await other.close()


async def test_readers_in_many_threads_share_the_writer(store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))

    def read(number: int) -> int:
        return len([asyncio.run(store.get("s")) for _ in range(50)])

    async def write() -> None:
        for at in range(0, 100, 2):
            await store.append("s", TURN, at=at)

    *counts, _ = await asyncio.gather(*(asyncio.to_thread(read, number) for number in range(4)), write())
    assert counts == [50] * 4
    assert (await store.get("s")).message_count == 100
    assert await store.examine("s") == []


async def test_a_closed_store_reads_nothing(path: Path) -> None:
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.get("s")
