"""Measure durable forks beside the least durable write of SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from amplifier_core.storage import SessionRecord
from amplifier_foundation.sessions.forks import fork_stored
from amplifier_storage_sqlite import open_sqlite

from .measure import Row, awaited, called, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from amplifier_core.storage import SessionStore

    from .measure import Sample

SHORT, LONG = 10, 10_000
"""Messages of a history."""
AT_MOST = 3.0  # goal: times a one-row transaction of the same durability
GROWTH_AT_MOST = 1.5  # goal: times the fork of a short history
PAYLOAD_AT_MOST = 1024  # goal: bytes

CALLS, ROUNDS = 20, 15
MESSAGE = {"role": "user", "content": "x" * 200, "metadata": {"timestamp": "2026-01-01T00:00:00+00:00"}}


async def rows() -> AsyncIterator[Row]:
    """Fork a short and a long session of one store, by the store alone and as the command line does."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder, _raw(Path(folder)) as raw:
        async with _store(Path(folder)) as store:
            ways = [_created(store, "short", SHORT), _created(store, "long", LONG)]
            ways += [_forked(store, "short"), _forked(store, "long")]
            *forks, limit = await in_turns(*ways, _by_hand(raw), rounds=ROUNDS)
            payload = _payload(Path(folder) / "store.db")
    for what, (short, long) in (("store.create of a fork", forks[:2]), ("session fork", forks[2:])):
        yield Row(f"{what}, {SHORT} messages / a one-row transaction", short, limit, at_most_ratio=AT_MOST)
        yield Row(f"{what}, {LONG:,} messages / a one-row transaction", long, limit, at_most_ratio=AT_MOST)
        yield Row(f"{what}, {LONG:,} / {SHORT} messages", long, short, at_most_ratio=GROWTH_AT_MOST)
    yield Row("payload of a fork", payload, at_most=PAYLOAD_AT_MOST, unit="B")


def _created(store: SessionStore, source: str, at: int) -> Sample:
    async def create() -> None:
        await store.create(SessionRecord(uuid4().hex, parent_id=source, fork_of=source, fork_at=at))

    return awaited(create, CALLS)


def _forked(store: SessionStore, source: str) -> Sample:
    async def fork() -> None:
        await fork_stored(store, await store.get(source))

    return awaited(fork, CALLS)


def _by_hand(db: sqlite3.Connection) -> Sample:
    def insert() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows (body) VALUES (?)", ("x" * 200,))
        db.execute("COMMIT")

    return called(insert, CALLS)


@contextmanager
def _raw(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open a database beside the store with the same durability: each commit waits for the disk."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = ON")
        db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        yield db
    finally:
        db.close()


@asynccontextmanager
async def _store(folder: Path) -> AsyncIterator[SessionStore]:
    """Open a store with a short session and a long one."""
    store = open_sqlite({"path": folder / "store.db"})
    try:
        for name, messages in (("short", SHORT), ("long", LONG)):
            await store.create(SessionRecord(name))
            await store.append(name, _conversation(messages), at=0)
        yield store
    finally:
        await store.close()


def _conversation(messages: int) -> list[dict[str, Any]]:
    return [{**MESSAGE, "role": "assistant" if number % 2 else "user"} for number in range(messages)]


def _payload(path: Path) -> float:
    """Return the bytes of the values in the row of one fork."""
    db = sqlite3.connect(path)
    try:
        row = db.execute("SELECT * FROM sessions WHERE fork_of = 'long' ORDER BY id DESC LIMIT 1").fetchone()
    finally:
        db.close()
    return float(sum(len(str(value).encode()) for value in row if value is not None))
