"""Measure folders of JSON lines: one more turn beside the same bytes written by hand, forks, ends, lists."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl import open_jsonl

from .measure import Row, awaited, called, in_turns, timed
from .storing import (
    CALLS,
    LONG,
    LONGEST,
    MESSAGE,
    ROUNDS,
    SHORT,
    TURN,
    closing_store,
    forking,
    more_turns,
    next_turns,
    session,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager

    from amplifier_core.storage import SessionStore

    from .measure import Sample

MANY = 10_000
"""Sessions of a list."""
TAIL = 50
"""Messages that a context asks for."""

TURN_AT_MOST = 1.5  # goal: times the same bytes appended by hand, as durably
TURN_GROWTH_AT_MOST = 1.2  # goal: times one more turn of a short session
FORK_GROWTH_AT_MOST = 1.5  # goal: times the fork of a short session
LIST_AT_MOST = 0.2  # goal: seconds
TAIL_GROWTH_AT_MOST = 1.5  # goal: times the whole of a session that has no more


async def rows() -> AsyncIterator[Row]:
    """Measure each in a folder of its own."""
    for part in (_turns, _forks, _tails, _lists):
        with TemporaryDirectory(prefix="amplifier-bench-") as folder:
            async for row in part(Path(folder)):
                yield row


async def _turns(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
        shorts = [f"short-{number}" for number in range(CALLS * (ROUNDS + 1))]
        for name in shorts:
            await session(store, name, SHORT)
        await session(store, "long", LONG)
        with _by_hand(folder, await _bytes_of_a_turn(store, folder)) as by_hand:
            samples = next_turns(store, iter(shorts)), more_turns(store, "long"), by_hand
            short, long, limit = await in_turns(*samples, rounds=ROUNDS)
    yield Row(f"one more turn of 2 KB, {SHORT} messages / a raw append", short, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"one more turn of 2 KB, {LONG:,} messages / a raw append", long, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"one more turn, {LONG:,} / {SHORT} messages", long, short, at_most_ratio=TURN_GROWTH_AT_MOST)


async def _forks(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
        for name, messages in (("short", SHORT), ("long", LONGEST)):
            await session(store, name, messages)
        short, long = await in_turns(forking(store, "short"), forking(store, "long"), rounds=ROUNDS)
    yield Row(f"durable fork, {LONGEST:,} / {SHORT} messages", long, short, at_most_ratio=FORK_GROWTH_AT_MOST)


async def _tails(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
        for name, messages in (("short", TAIL), ("long", LONGEST)):
            await session(store, name, messages)
        ends = [called(lambda: store.read_sync("short", 0, TAIL), CALLS)]
        ends.append(called(lambda: store.read_sync("long", LONGEST - TAIL, LONGEST), CALLS))
        short, long = await in_turns(*ends, rounds=ROUNDS)
    what = f"the last {TAIL} messages, of {LONGEST:,} / of {TAIL}"
    yield Row(what, long, short, at_most_ratio=TAIL_GROWTH_AT_MOST)


async def _lists(folder: Path) -> AsyncIterator[Row]:
    """List sessions after their turn with a newly opened store, as each command does."""
    plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "tools": ["x" * 200]}
    async with _store(folder) as store:
        for number in range(MANY):
            await store.create(SessionRecord(f"s{number}", project=f"/p{number % 2}", config=plan))
            await store.append(f"s{number}", [MESSAGE], at=0)
            await store.update(f"s{number}", status="idle", turn_count=1)

    async def listed(limit: int | None = None) -> None:
        async with _store(folder) as store:
            assert len(await store.sessions(limit=limit)) == (limit or MANY)

    whole, page = await in_turns(awaited(listed, 1), awaited(lambda: listed(20), 1), rounds=7)
    yield timed(f"list of {MANY:,} sessions", whole, at_most=LIST_AT_MOST)
    yield Row(f"the newest 20 of {MANY:,} sessions", page)


# sessions and samples


def _store(folder: Path) -> AbstractAsyncContextManager[SessionStore]:
    return closing_store(open_jsonl({"path": folder}))


async def _bytes_of_a_turn(store: SessionStore, folder: Path) -> bytes:
    """Return the bytes of one turn."""
    await store.create(SessionRecord("turn"))
    await store.append("turn", TURN, at=0)
    [transcript] = folder.glob("projects/*/sessions/turn/transcript.jsonl")
    return transcript.read_bytes()


@contextmanager
def _by_hand(folder: Path, data: bytes) -> Iterator[Sample]:
    """Append the same bytes to an open file beside the store, and wait for the disk."""
    file = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append() -> None:
        os.write(file, data)
        os.fdatasync(file)

    try:
        yield called(append, CALLS)
    finally:
        os.close(file)
