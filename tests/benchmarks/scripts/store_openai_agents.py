"""A turn more, and a fork, of a session that openai-agents keeps in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agents import SQLiteSession
from answering import answer, seconds_of

NUMBERS = count()
TURN: Any = [{"role": "user", "content": "x" * 1000}, {"role": "assistant", "content": "y" * 1000}]


class Careless(SQLiteSession):
    """Writes without a wait for the disk."""

    @staticmethod
    def _configure_connection(conn: sqlite3.Connection) -> None:
        SQLiteSession._configure_connection(conn)
        conn.execute("PRAGMA synchronous = OFF")


def asked(path: Path, messages: int) -> dict[str, Any]:
    """Fill a session, and return the questions about it."""
    session = SQLiteSession(f"session-{messages}", path)
    history: Any = [{"role": "user", "content": "x" * 200}] * messages
    asyncio.run(session.add_items(history))

    async def turn() -> None:
        await session.add_items(TURN)

    async def fork() -> None:
        await SQLiteSession(f"session-{messages}-{next(NUMBERS)}", path).add_items(await session.get_items())

    careless = Careless(f"careless-{messages}", path)
    asyncio.run(careless.add_items(history))

    async def careless_turn() -> None:
        await careless.add_items(TURN)

    return {
        f"careless_{messages}": lambda: seconds_of(careless_turn, 20),
        f"turn_{messages}": lambda: seconds_of(turn, 10),
        f"fork_{messages}": lambda: seconds_of(fork, 2),
    }


with TemporaryDirectory(prefix="amplifier-bench-") as folder:
    file = Path(folder) / "store.db"
    with closing(sqlite3.connect(file)) as plain:  # the session opens its own so: each commit waits for the disk
        assert plain.execute("PRAGMA synchronous").fetchone() == (2,), "this SQLite is not built with synchronous=FULL"
    answer(**asked(file, 10), **asked(file, 10_000))
