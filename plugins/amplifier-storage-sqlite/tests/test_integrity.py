"""Delete, examine and repair sessions, and count the rows kept and freed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import StoreDamaged
from amplifier_core.storage import SessionRecord

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore


def _rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(query).fetchall()


def _messages_kept(path: Path) -> list[str]:
    return [body for (body,) in _rows(path, "SELECT body FROM messages ORDER BY history, position")]


def _numbered(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(start, start + count)]


async def test_what_no_fork_shares_is_freed_with_its_session(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("source"))
    await store.append("source", _numbered(5), at=0)
    await store.create(SessionRecord("short", fork_of="source", fork_at=1))
    await store.create(SessionRecord("long", fork_of="source", fork_at=3))
    await store.delete("source")
    assert _messages_kept(path) == ['{"n":0}', '{"n":1}', '{"n":2}']
    await store.delete("long")
    await store.create(SessionRecord("deep", fork_of="short", fork_at=1))
    await store.delete("short")
    assert await store.read("deep") == _numbered(1)
    await store.delete("deep")
    assert _messages_kept(path) == []
    assert _rows(path, "SELECT count(*) FROM histories") == [(0,)]


async def test_a_chain_keeps_no_more_than_its_last_fork_shares(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("a"))
    await store.append("a", _numbered(4), at=0)
    await store.create(SessionRecord("b", fork_of="a"))
    await store.append("b", _numbered(2, 4), at=4)
    await store.create(SessionRecord("c", fork_of="b", fork_at=2))
    await store.delete("b")
    assert await store.read("a") == _numbered(4)
    await store.delete("a")
    assert _messages_kept(path) == ['{"n":0}', '{"n":1}']
    assert (await store.read("c"), await store.append("c", _numbered(1, 2), at=2)) == (_numbered(2), 3)


async def test_a_history_ends_before_its_first_bad_message_and_the_rest_is_kept(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", _numbered(6), at=0)
    await store.create(SessionRecord("fork", fork_of="s", fork_at=2))
    _rows(path, "DELETE FROM messages WHERE position = 4")
    _rows(path, "UPDATE messages SET body = x'fffe' WHERE position = 2")
    found = await store.examine("s")
    assert [(finding.kind, finding.position) for finding in found] == [("bad_message", 2), ("bad_message", 4)]
    assert [finding.message for finding in found] == ["message m3 is not what was written", "message m5 is missing"]
    assert found[0].remedy.startswith("end the history before message m3; ")
    assert await store.repair("s") == found
    assert (await store.examine("s"), await store.read("s")) == ([], _numbered(2))
    assert await store.append("s", [{"n": "new"}], at=2) == 3
    assert await store.read("s") == [*_numbered(2), {"n": "new"}]
    assert await store.read("fork") == _numbered(2)
    kept = "SELECT position, body FROM messages JOIN cuts USING (history) WHERE session_id = 's' AND position >= start"
    assert _rows(path, kept) == [(2, b"\xff\xfe"), (3, '{"n":3}'), (5, '{"n":5}')]


async def test_what_was_cut_stays_until_its_session_is_deleted(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", _numbered(3), at=0)
    await store.create(SessionRecord("fork", fork_of="s"))
    _rows(path, "UPDATE messages SET digest = 0 WHERE position = 1")
    await store.repair("s")
    await store.delete("fork")
    assert len(_messages_kept(path)) == 3
    await store.delete("s")
    assert (_messages_kept(path), _rows(path, "SELECT count(*) FROM cuts")) == ([], [(0,)])


async def test_a_fork_whose_shared_messages_are_damaged_is_cut_there(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", _numbered(3), at=0)
    await store.create(SessionRecord("fork", fork_of="s"))
    await store.append("fork", _numbered(1, 3), at=3)
    _rows(path, "UPDATE messages SET digest = 0 WHERE position = 1")
    await store.repair("fork")
    record = await store.get("fork")
    assert (record.fork_of, record.fork_at, record.message_count) == ("s", 1, 1)
    assert await store.read("fork") == _numbered(1)
    with pytest.raises(StoreDamaged, match="message m2 is not what was written"):
        await store.read("s")


async def test_a_fork_that_lost_its_link_is_examined_as_missing_messages(path: Path, store: SqliteStore) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", _numbered(2), at=0)
    await store.create(SessionRecord("fork", fork_of="s"))
    _rows(path, "UPDATE histories SET digest = 0 WHERE source IS NOT NULL")
    assert [finding.message for finding in await store.examine("fork")] == [
        "message m1 is missing",
        "message m2 is missing",
    ]
    await store.repair("fork")
    assert await store.read("fork") == []
