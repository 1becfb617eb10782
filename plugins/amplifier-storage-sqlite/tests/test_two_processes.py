"""Check that the store keeps the contract between two processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from amplifier_core.testing.store_checks.shared import TWO_PROCESS_CHECKS, Stores

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    path = tmp_path_factory.mktemp("shared") / "store.db"
    stores = Stores("amplifier_storage_sqlite:open_sqlite", {"path": str(path)}, size=200)
    yield stores
    asyncio.run(stores.close())


@pytest.mark.parametrize("check", TWO_PROCESS_CHECKS, ids=lambda check: check.__name__)
async def test_two_processes_keep_the_contract(check: Callable[[Stores], Awaitable[None]], stores: Stores) -> None:
    await check(stores)
