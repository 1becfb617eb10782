"""Check that the store keeps the contract between processes, and that of a shared store."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from amplifier_core.testing.store_checks.shared import SHARED_CHECKS, TWO_PROCESS_CHECKS, Stores

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.postgres import Postgres

pytestmark = pytest.mark.slow

SIZE = int(os.environ.get("STORE_SIZE", "200"))
"""Events where many are written; a campaign takes 100000."""


@pytest.fixture(scope="module")
def stores(postgres: Postgres) -> Iterator[Stores]:
    config = {"dsn": postgres.create("processes")}
    stores = Stores("amplifier_storage_postgres:open_postgres", config, size=SIZE, patience=60 + SIZE / 50)
    yield stores
    asyncio.run(stores.close())


@pytest.mark.parametrize("check", TWO_PROCESS_CHECKS + SHARED_CHECKS, ids=lambda check: check.__name__)
async def test_processes_keep_the_contract(check: Callable[[Stores], Awaitable[None]], stores: Stores) -> None:
    await check(stores)
