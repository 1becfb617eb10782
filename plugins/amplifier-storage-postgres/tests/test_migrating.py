"""Make the tables, by several processes at the same time, and bring those of an older version to this one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_postgres import open_postgres, schema
from amplifier_storage_postgres.connections import Pool
from amplifier_storage_postgres.schema import migrate
from amplifier_storage_postgres.settings import read_settings

if TYPE_CHECKING:
    import pytest

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


async def test_tables_of_version_1_go_on_with_their_rows(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    dsn, versions = postgres.create(), schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", versions[:1])
    old = open_postgres({"dsn": dsn})
    stored = await old.enqueue("/p", "queue", "t", TriggerEvent(TriggerType.CUSTOM, "x"))
    await old.close()
    monkeypatch.setattr(schema, "MIGRATIONS", versions)
    store = open_postgres({"dsn": dsn})
    assert await store.delivery_page() == [stored]
    await store.close()
    shapes = []
    for each in (dsn, postgres.create()):
        new = open_postgres({"dsn": each})
        indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'amplifier' ORDER BY indexname"
        shapes.append(await new._runner.rows(indexes))
        await new.close()
    assert shapes[0] == shapes[1]
