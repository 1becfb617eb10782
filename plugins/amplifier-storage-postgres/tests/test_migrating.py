"""Processes that make the tables at the same time: one makes them, and the others see that."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from amplifier_storage_postgres.connections import Pool
from amplifier_storage_postgres.schema import migrate
from amplifier_storage_postgres.settings import read_settings

if TYPE_CHECKING:
    from tests.postgres import Postgres

AT_ONCE = 6
DATABASES = 5


def test_of_several_who_make_the_tables_at_once_all_find_them(postgres: Postgres) -> None:
    for dsn in [postgres.create() for _ in range(DATABASES)]:
        together = threading.Barrier(AT_ONCE)

        def make(dsn: str = dsn, together: threading.Barrier = together) -> None:
            pool = Pool(read_settings({"dsn": dsn}))
            together.wait()
            migrate(pool)
            pool.close()

        with ThreadPoolExecutor(AT_ONCE) as threads:
            for done in [threads.submit(make) for _ in range(AT_ONCE)]:
                done.result()
