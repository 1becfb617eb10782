"""Purge a store in steps, with pauses: nobody else who writes waits longer than for one of them.

One transaction for 900,000 deliveries took two minutes, in which every other process failed: a writer waits for
seconds. SQLite hands the file to whoever asks next, and a waiting writer asks every tenth of a second
(https://sqlite.org/c3ref/busy_timeout.html), so a pause is as long as the step before it.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from amplifier_core.storage import Purged

from .counting import FINISHED
from .values import micros

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from .reader import Reader
    from .writer import Writer

REMEMBERED_FOR = timedelta(days=30)
"""The ids of received events stay at least this long: a broker may send one again."""
STEP = 250
"""Rows of a table that are deleted at once: 10 to 40 ms with all indexes."""
LONGEST_PAUSE = 0.25
"""Seconds between two steps, at most."""

_OVER = {
    "deliveries": f"state IN ('done', 'refused', 'skipped') AND {FINISHED} AND updated < :before",
    "received": "sequence < :first AND at < :old",
    "events": "sequence < :first ORDER BY sequence",
}
"""What is deleted of each table, in this order: the ids of events that are gone are found by their sequences."""


async def purge(writer: Writer, reader: Reader, before: int, event_bytes: int) -> Purged:
    """Delete deliveries finished by then, and the beginning of a log longer than `event_bytes`."""
    import asyncio

    first = await asyncio.to_thread(reader.run, lambda db: find_first(db, before, event_bytes))
    old = min(before, micros(datetime.now(UTC) - REMEMBERED_FOR))
    counts = dict.fromkeys(_OVER, 0)
    for table in counts:
        values = {"before": before, "first": first, "old": old}
        while True:
            begun = perf_counter()
            count = await writer.run(partial(purge_some, table=table, values=values), erases=True)
            counts[table] += count
            if count < STEP:
                break
            await asyncio.sleep(min(perf_counter() - begun, LONGEST_PAUSE))
    return Purged(counts["deliveries"], counts["events"])


def find_first(db: sqlite3.Connection, before: int, event_bytes: int) -> int:
    """Return the sequence of the first event that stays."""
    last = _newest_beyond(db, event_bytes)
    recent = "SELECT sequence FROM events WHERE sequence <= ? AND timestamp >= ? ORDER BY sequence LIMIT 1"
    kept = db.execute(recent, (last, before)).fetchone()
    return int(kept[0]) if kept else last + 1


def purge_some(db: sqlite3.Connection, table: str, values: Mapping[str, int]) -> int:
    """Delete at most `STEP` rows of a table that are over; return how many."""
    some = f"SELECT rowid FROM {table} WHERE {_OVER[table]} LIMIT {STEP}"
    return db.execute(f"DELETE FROM {table} WHERE rowid IN ({some})", values).rowcount


def _newest_beyond(db: sqlite3.Connection, event_bytes: int) -> int:
    """Return the sequence of the newest event beyond `event_bytes`, 0 if all fit; read no older one."""
    query = "SELECT sequence, length(CAST(data AS BLOB)) FROM events ORDER BY sequence DESC"
    left = event_bytes
    with closing(db.execute(query)) as newest_first:
        for sequence, size in newest_first:
            left -= size
            if left < 0:
                return int(sequence)
    return 0
