"""Deleted texts leave the write-ahead log, too: for many deletions at once, and nobody waits for it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from amplifier_core.events import SessionEvent
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import open_sqlite, writer

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_sqlite.store import SqliteStore

SECRET = "a secret of one"


def _has_secret(path: Path) -> bool:
    """Return whether the file of the store or its log has the text."""
    return any(SECRET.encode() in each.read_bytes() for each in (path, path.with_name(path.name + "-wal")))


async def _tell(store: SqliteStore, *session_ids: str) -> None:
    for session_id in session_ids:
        await store.create(SessionRecord(session_id))
        await store.append(session_id, [{"content": SECRET}], at=0)
        await store.emit(SessionEvent("session:completed", {"output": SECRET}, session_id))


async def _until_erased(path: Path) -> None:
    async with asyncio.timeout(60):
        while _has_secret(path):
            await asyncio.sleep(0.02)


async def test_who_deletes_and_closes_leaves_nothing_in_the_log_of_others(store: SqliteStore, path: Path) -> None:
    await _tell(store, "s")
    other = open_sqlite({"path": path})
    await other.delete("s")
    await other.close()
    assert not _has_secret(path)


@pytest.mark.parametrize("how", ["delete", "purge"])
async def test_a_store_that_stays_open_ends_its_log_by_itself(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(writer, "ERASE_AFTER", 0.05)
    await _tell(store, "s")
    assert _has_secret(path)
    await store.delete("s")
    if how == "purge":
        await store.emit(SessionEvent("said", {"text": SECRET}))
        await store.purge(before=datetime.now(UTC) + timedelta(days=1))
    await _until_erased(path)


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
async def test_a_log_in_use_elsewhere_is_left_without_waiting_and_ends_later(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    monkeypatch.setattr(writer, "ERASE_AFTER", 3600.0)
    patient = open_sqlite({"path": path, "busy_timeout": 3600})
    await _tell(store, "s")
    await patient.delete("s")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(begin)
        other.execute("SELECT * FROM sessions").fetchall()
        await asyncio.wait_for(asyncio.to_thread(patient._writer._end_log), 60)
        assert _has_secret(path)
    await patient.close()
    assert not _has_secret(path)


async def test_the_log_ends_once_after_many_deletions(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ERASE_AFTER", 3600.0)
    names = [f"s{number}" for number in range(50)]
    other = open_sqlite({"path": path})
    await _tell(other, *names)
    statements: list[str] = []
    other._writer._db.set_trace_callback(statements.append)
    for name in names:
        await other.delete(name)
    assert _has_secret(path)
    await other.close()
    assert [each for each in statements if "TRUNCATE" in each] == ["PRAGMA wal_checkpoint(TRUNCATE)"]
    assert not _has_secret(path)
