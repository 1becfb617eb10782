"""Make samples for any store: sessions with a history, their next turns, and forks."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import open_sqlite

from .measure import awaited, called

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from amplifier_core.storage import SessionStore

    from .measure import Row, Sample

SHORT, LONG, LONGEST = 10, 10_000, 100_000
"""Messages of a history."""
CALLS, ROUNDS = 20, 15
MESSAGE = {"role": "user", "content": "x" * 200}
TURN = [{"role": "user", "content": "x" * 1000}, {"role": "assistant", "content": "y" * 1000}]


def in_folder(part: Callable[[Path], AsyncIterator[Row]]) -> Callable[[], AsyncIterator[Row]]:
    """Return a part that is measured in a temporary folder of its own."""

    @wraps(part)
    async def run() -> AsyncIterator[Row]:
        with TemporaryDirectory(prefix="amplifier-bench-") as folder:
            async for row in part(Path(folder)):
                yield row

    return run


def store_in(folder: Path) -> AbstractAsyncContextManager[SessionStore]:
    """Open the store of a folder for the time of the block."""
    return closing_store(open_sqlite({"path": folder / "store.db"}))


def raw_in(folder: Path) -> sqlite3.Connection:
    """Open a database beside the store with the same durability: each commit waits for the disk."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    return db


def one_row(db: sqlite3.Connection, size: int, calls: int | None = None) -> Sample:
    """Return a sample of a transaction that adds one row of so many bytes."""

    def insert() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows (body) VALUES (?)", ("x" * size,))
        db.execute("COMMIT")

    return called(insert, calls or CALLS)


@asynccontextmanager
async def closing_store(store: SessionStore) -> AsyncIterator[SessionStore]:
    """Close `store` at the end of the block."""
    try:
        yield store
    finally:
        await store.close()


async def session(store: SessionStore, name: str, messages: int) -> None:
    """Store a session with a history of so many messages."""
    await store.create(SessionRecord(name))
    await store.append(name, [MESSAGE] * messages, at=0)


def next_turns(store: SessionStore, names: Iterator[str]) -> Sample:
    """Return a sample of the next turn of sessions nobody has continued yet."""
    return awaited(lambda: store.append(next(names), TURN, at=SHORT), CALLS)


def more_turns(store: SessionStore, name: str) -> Sample:
    """Return a sample of one more turn of a session."""

    async def sample() -> float:
        at = (await store.get(name)).message_count
        start = perf_counter()
        for _ in range(CALLS):
            at = await store.append(name, TURN, at=at)
        return (perf_counter() - start) / CALLS

    return sample


def forking(store: SessionStore, source: str) -> Sample:
    """Return a sample of one more fork of a session."""
    numbers = count()

    async def fork() -> Any:
        return await store.create(SessionRecord(f"{source}-{next(numbers)}", parent_id=source, fork_of=source))

    return awaited(fork, CALLS)
