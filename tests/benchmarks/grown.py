"""Make large stores by SQL, with the rows that the product writes; stores of deliveries are kept between runs.

A row is made by the store itself, and copied with other ids. The rows are counted afterwards, and their indexes made by
sorting.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import open_sqlite
from amplifier_storage_sqlite.counting import count_deliveries
from amplifier_storage_sqlite.schema import MIGRATIONS

from .environment import ROOT
from .storing import closing_store

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = ROOT / "build" / "bench-stores"
"""Stores of this version, by the number of their deliveries; git ignores the folder."""
PROJECT, QUEUE, TRIGGER = "/bench", "bench/queue", "bench/queue/trigger-timer#1"
MANY = 100_000
"""Deliveries of a store that is kept."""
GROWN_AT_MOST = 1.1
"""A kept store is made again once runs have added more: times its deliveries."""

_COPY = """
INSERT INTO deliveries
    (id, delivery_id, event, dedupe_key, event_id, session_id, created, updated, available_at, {same})
WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
SELECT n,
    printf('%08x%024x', n * 4294967295 / :count, n),
    replace(replace(event, event_id, {event_id}), '"tick-1"', '"tick-' || n || '"'),
    'tick-' || n,
    {event_id},
    printf('queue-%08x%08x', n * 2654435761 % 4294967296, n),
    created + n, updated + n, available_at + n, {same}
FROM numbers, temp.first
"""
_EVENT_ID = "printf('%08x%024x', n * 2654435761 % 4294967296, n)"
"""Spread as random ids are: one more comes between any two."""
_CHANGED = (
    *("id", "delivery_id", "event", "dedupe_key", "event_id", "session_id"),
    *("created", "updated", "available_at"),
)
_INDEXES = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'deliveries' AND sql IS NOT NULL"
_TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'deliveries'"


async def grown_store(deliveries: int, folder: Path) -> Path:
    """Return the file of a store with so many finished deliveries: a new one in `folder`, or if it is large a kept one.

    A kept one is made where there is none that can be used; one of an earlier version is brought to this one.
    """
    if deliveries < MANY:
        path = folder / f"deliveries-{deliveries}.db"
        await _make(path, deliveries)
        return path
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"deliveries-{deliveries}-schema-{len(MIGRATIONS)}.db"
    for earlier in sorted(KEPT.glob(f"deliveries-{deliveries}-schema-*.db")):
        if earlier != path and not path.exists():
            await open_sqlite({"path": earlier}).close()
            earlier.rename(path)
    for other in KEPT.glob(f"deliveries-{deliveries}-*"):
        if not other.name.startswith(path.name):
            other.unlink()
    if not path.exists() or not is_usable(path, deliveries):
        for each in _files(path):
            each.unlink(missing_ok=True)
        click.echo(f"Making a store of {deliveries:,} deliveries in {KEPT.relative_to(ROOT)} (once) …", err=True)
        draft = path.with_name(f"draft-{path.name}")
        await _make(draft, deliveries)
        draft.rename(path)
    return path


def is_usable(path: Path, deliveries: int) -> bool:
    """Return whether a store is complete, of this version, and about as large as its name says."""
    ends = "SELECT count(*) FROM deliveries WHERE id IN (1, ?)"
    unfinished = "SELECT count(*) FROM deliveries WHERE state IN ('pending', 'claimed')"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        try:
            [(version,)] = db.execute("PRAGMA user_version")
            [(last,)] = db.execute("SELECT max(id) FROM deliveries")
            are_there = db.execute(ends, (deliveries,)).fetchone() == (2,)
            is_finished = db.execute(unfinished).fetchone() == (0,)
            indexes = {name for name, _ in db.execute(_INDEXES)}
        except (sqlite3.Error, ValueError):
            return False
    is_whole = version == len(MIGRATIONS) and are_there and is_finished and indexes == _new_indexes()
    return is_whole and last <= deliveries * GROWN_AT_MOST


async def _make(path: Path, deliveries: int) -> None:
    for each in _files(path):
        each.unlink(missing_ok=True)
    async with closing_store(open_sqlite({"path": path})) as store:
        event = TriggerEvent(TriggerType.TIMER, "trigger-timer", data={"tick": 1}, dedupe_key="tick-1")
        await store.enqueue(PROJECT, QUEUE, TRIGGER, event)
        claimed = await store.claim(PROJECT, QUEUE, owner="bench", lease=60, session_id="queue-0000000000000001")
        assert claimed is not None
        await store.commit(claimed)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for pragma in ("journal_mode = DELETE", "journal_mode = OFF", "synchronous = OFF", "cache_size = -200000"):
            db.execute(f"PRAGMA {pragma}")
        db.execute(
            "CREATE TEMP TABLE first AS SELECT * FROM deliveries"
        )  # its own table would be read into memory first
        db.execute("BEGIN")
        indexes, triggers = db.execute(_INDEXES).fetchall(), db.execute(_TRIGGERS).fetchall()
        for kind, dropped in (("INDEX", indexes), ("TRIGGER", triggers)):
            for name, _ in dropped:
                db.execute(f"DROP {kind} {name}")
        same = ", ".join(row[1] for row in db.execute("PRAGMA table_info(deliveries)") if row[1] not in _CHANGED)
        db.execute(_COPY.format(same=same, event_id=_EVENT_ID), {"count": deliveries})
        count_deliveries(db)
        for _, statement in (*indexes, *triggers):
            db.execute(statement)
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")


def _new_indexes() -> set[str]:
    """Return the names of the indexes of deliveries in a new store."""
    from amplifier_storage_sqlite.schema import upgrade

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        upgrade(db)
        return {name for name, _ in db.execute(_INDEXES)}


def _files(path: Path) -> Iterator[Path]:
    yield from (path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal"))
