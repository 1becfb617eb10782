"""Measure the store of many hosts beside a one-row transaction of the same server, which waits for its disk too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg

from amplifier_core.events import SessionEvent
from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_postgres import open_postgres
from tests.postgres import Postgres, running

from .measure import Row, awaited, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.storage import Delivery
    from amplifier_storage_postgres.store import PostgresStore

    from .measure import Sample

SHORT, LONG = 50, 100_000
"""Messages of a history."""
TURN_AT_MOST, FORK_AT_MOST, COMMIT_AT_MOST = 2.0, 3.0, 3.0  # goals: times a one-row transaction
GROWTH_AT_MOST = 1.2  # goal: times the same in a short history
PAIRS_AT_LEAST = 500  # goal: claims with their commits in a second, of all workers together

WORKERS, PAIRS = 4, 400
CALLS, ROUNDS = 20, 12
MESSAGES = [{"role": role, "content": "x" * 200} for role in ("user", "assistant")]

WORKER = """
import asyncio, sys, time
from amplifier_storage_postgres import open_postgres

async def main():
    store = open_postgres({"dsn": sys.argv[1]})
    await store.last_sequence()
    print("ready", flush=True)
    sys.stdin.readline()
    done = 0
    while claimed := await store.claim("/p", "queue", owner=f"{sys.argv[2]}@h", lease=60, session_id="s"):
        await store.commit(claimed)
        done += 1
    print(done, flush=True)
    await store.close()

asyncio.run(main())
"""


async def rows() -> AsyncIterator[Row]:
    """Write turns, forks, claims and commits, and let several processes work off a queue."""
    with running(fsync=True) as server:
        dsn = server.create()
        store = open_postgres({"dsn": dsn})
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as raw:
            raw.execute("CREATE TABLE row (body text)")
            async for row in _measure_store(store, raw):
                yield row
        await store.close()
        yield await _measure_workers(server)
    with running() as server:
        yield await _measure_workers(server, "without fsync")


async def _measure_store(store: PostgresStore, raw: psycopg.Connection[object]) -> AsyncIterator[Row]:
    for name, size in (("short", SHORT), ("long", LONG)):
        await store.create(SessionRecord(name))
        for at in range(0, size, 5000):
            await store.append(name, MESSAGES[:1] * min(5000, size - at), at=at)
    short, long, forked, forked_long, commit, limit = await in_turns(
        _turn(store, "short", SHORT),
        _turn(store, "long", LONG),
        _fork(store, "short", SHORT),
        _fork(store, "long", LONG),
        await _commit(store),
        _by_hand(raw),
        rounds=ROUNDS,
    )
    one = "a one-row transaction"
    yield Row(f"a turn after {SHORT} messages / {one}", short, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"a fork of {SHORT} messages / {one}", forked, limit, at_most_ratio=FORK_AT_MOST)
    yield Row(f"a commit with an event / {one}", commit, limit, at_most_ratio=COMMIT_AT_MOST)
    yield Row(f"a turn after {LONG:,} / {SHORT} messages", long, short, at_most_ratio=GROWTH_AT_MOST)
    yield Row(f"a fork of {LONG:,} / {SHORT} messages", forked_long, forked, at_most_ratio=GROWTH_AT_MOST)
    late, early = await in_turns(_read(store, "long", LONG), _read(store, "short", SHORT), rounds=ROUNDS)
    yield Row(f"the last 50 of {LONG:,} / {SHORT} messages", late, early, at_most_ratio=GROWTH_AT_MOST)


def _turn(store: PostgresStore, session_id: str, size: int) -> Sample:
    places = count(size, len(MESSAGES))

    async def append() -> None:
        await store.append(session_id, MESSAGES, at=next(places))

    return awaited(append, CALLS)


def _fork(store: PostgresStore, source: str, at: int) -> Sample:
    async def create() -> None:
        await store.create(SessionRecord(uuid4().hex, fork_of=source, fork_at=at))

    return awaited(create, CALLS)


def _read(store: PostgresStore, session_id: str, size: int) -> Sample:
    async def read() -> None:
        await store.read(session_id, size - 50, size)

    return awaited(read, CALLS)


async def _commit(store: PostgresStore) -> Sample:
    """Return commits of deliveries that are claimed before."""
    await _fill(store, CALLS * (ROUNDS + 2))
    claimed: list[Delivery] = []
    while (one := await store.claim("/p", "queue", owner="p@h", lease=3600, session_id="short")) is not None:
        claimed.append(one)

    async def commit() -> None:
        await store.commit(claimed.pop(), emits=[SessionEvent("done", {})], session={"status": "idle"})

    return awaited(commit, CALLS)


def _by_hand(raw: psycopg.Connection[object]) -> Sample:
    async def insert() -> None:
        await asyncio.to_thread(raw.execute, "INSERT INTO row VALUES (%s)", ("x" * 200,))

    return awaited(insert, CALLS)


async def _fill(store: PostgresStore, many: int) -> None:
    for _ in range(many):
        await store.enqueue("/p", "queue", "trigger", TriggerEvent(TriggerType.CUSTOM, "bench"))


async def _measure_workers(server: Postgres, how: str = "") -> Row:
    dsn = server.create()
    store = open_postgres({"dsn": dsn})
    await _fill(store, WORKERS * PAIRS)
    command = [sys.executable, "-c", WORKER, dsn]
    workers = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(WORKERS)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    began = perf_counter()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    done = sum(int(worker.communicate()[0]) for worker in workers)
    seconds = perf_counter() - began
    await store.close()
    assert done == WORKERS * PAIRS
    what = f"a claim and its commit, {WORKERS} processes together {how}".strip()
    return Row(what, seconds / done, at_most=None if not how else 1 / PAIRS_AT_LEAST)
