"""Measure durable forks beside the least durable write of SQLite."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from amplifier_core.storage import SessionRecord
from amplifier_foundation.sessions.forks import fork_stored

from .measure import Row, awaited, in_turns
from .storing import CALLS, LONG, ROUNDS, SHORT, in_folder, one_row, raw_in, store_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_core.storage import SessionStore

    from .measure import Sample

AT_MOST = 2.0  # goal: times a one-row transaction of the same durability
GROWTH_AT_MOST = 1.2  # goal: times the fork of a short history
PAYLOAD_AT_MOST = 1.5  # goal: times the bytes of the request

MESSAGE = {"role": "user", "content": "x" * 200, "metadata": {"timestamp": "2026-01-01T00:00:00+00:00"}}


async def _forks(folder: Path) -> AsyncIterator[Row]:
    """Fork a short and a long session of one store, by the store alone and as the command line does."""
    async with store_in(folder) as store:
        for name, messages in (("short", SHORT), ("long", LONG)):
            await store.create(SessionRecord(name, status="idle"))  # its turns have ended: all of them are counted
            await store.append(name, _conversation(messages), at=0)
        with closing(raw_in(folder)) as raw:
            ways = [_created(store, "short", SHORT), _created(store, "long", LONG)]
            ways += [_forked(store, "short"), _forked(store, "long")]
            *forks, limit = await in_turns(*ways, one_row(raw, 200), rounds=ROUNDS)
    for what, (short, long) in (("store.create of a fork", forks[:2]), ("session fork", forks[2:])):
        yield Row(f"{what}, {SHORT} messages / a one-row transaction", short, limit, at_most_ratio=AT_MOST)
        yield Row(f"{what}, {LONG:,} messages / a one-row transaction", long, limit, at_most_ratio=AT_MOST)
        yield Row(f"{what}, {LONG:,} / {SHORT} messages", long, short, at_most_ratio=GROWTH_AT_MOST)


async def _payload(folder: Path) -> AsyncIterator[Row]:
    """Count the bytes of the values in the row of one fork, and of the request for it as JSON."""
    request = {"session_id": uuid4().hex, "parent_id": "long", "fork_of": "long", "fork_at": LONG}
    async with store_in(folder) as store:
        await store.create(SessionRecord("long"))
        await store.append("long", _conversation(LONG), at=0)
        await store.create(SessionRecord(**request))
        with closing(sqlite3.connect(folder / "store.db")) as db:
            row = db.execute("SELECT * FROM sessions WHERE fork_of = 'long'").fetchone()
    stored = sum(len(str(value).encode()) for value in row if value is not None)
    what = "bytes in the row of a fork / its request as JSON"
    yield Row(what, stored, len(json.dumps(request)), at_most_ratio=PAYLOAD_AT_MOST, unit="B")


PARTS = (in_folder(_forks), in_folder(_payload))


def _created(store: SessionStore, source: str, at: int) -> Sample:
    async def create() -> None:
        await store.create(SessionRecord(uuid4().hex, parent_id=source, fork_of=source, fork_at=at))

    return awaited(create, CALLS)


def _forked(store: SessionStore, source: str) -> Sample:
    async def fork() -> None:
        await fork_stored(store, await store.get(source))

    return awaited(fork, CALLS)


def _conversation(messages: int) -> list[dict[str, Any]]:
    return [{**MESSAGE, "role": "assistant" if number % 2 else "user"} for number in range(messages)]
