"""Processes that make the tables at the same time: one makes them, and the others see that."""

from __future__ import annotations

import asyncio

from amplifier_storage_postgres.connections import Pool, connect
from amplifier_storage_postgres.schema import _upgrade, migrate
from amplifier_storage_postgres.settings import read_settings
from tests.postgres import database, postgres

__all__ = ["database", "postgres"]  # fixtures

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('migrate ' || %s, 0))"
WAITS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def test_a_process_that_waited_for_the_tables_sees_that_they_are_made(database: str) -> None:
    pool = Pool(read_settings({"dsn": database}))
    with connect(pool.settings) as first, connect(pool.settings) as looking:
        with first.transaction():
            first.execute(LOCK, (pool.settings.schema,))
            waiting = asyncio.ensure_future(asyncio.to_thread(migrate, pool))  # it has seen that there are none
            while not looking.execute(WAITS).fetchone():
                first.execute("SELECT 1")  # an idle transaction would be ended
                await asyncio.sleep(0.01)
            _upgrade(pool, first, 0)
        await waiting
    pool.close()
