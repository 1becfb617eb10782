"""Check that the store keeps the contract, and that the checks of the contract can fail."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

import amplifier_storage_sqlite
from amplifier_core.documents import DocumentSearch
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_core.testing.store_checks import (
    DOCUMENT_CHECKS,
    INBOX_CHECKS,
    MESSAGE_CHECKS,
    QUERY_CHECKS,
    QUEUE_CHECKS,
    RECEIVING_CHECKS,
    SEARCH_CHECKS,
    SESSION_STORE_CHECKS,
    VIEW_CHECKS,
    check_store,
)
from amplifier_storage_sqlite import open_sqlite
from amplifier_storage_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core.storage import Delivery
    from amplifier_core.transcript import Message

ALL_CHECKS = (
    SESSION_STORE_CHECKS
    + INBOX_CHECKS
    + DOCUMENT_CHECKS
    + SEARCH_CHECKS
    + RECEIVING_CHECKS
    + VIEW_CHECKS
    + MESSAGE_CHECKS
    + QUERY_CHECKS
    + QUEUE_CHECKS
)


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.__name__)
async def test_the_store_keeps_the_contract(check: Callable[[SqliteStore], Any], store: SqliteStore) -> None:
    await check(store)


def test_the_store_is_registered_and_is_durable(path: Path) -> None:
    plugins = Plugins()
    plugins.register(amplifier_storage_sqlite)
    assert plugins.storages.get("storage-sqlite") is open_sqlite
    assert issubclass(SqliteStore, DurableStore)
    assert issubclass(SqliteStore, DocumentSearch)


class LosesTheLast(SqliteStore):
    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        return (await super().read(session_id, start, stop))[:-1]


class CopiesIntoTheSource(SqliteStore):
    async def create(self, record: SessionRecord) -> SessionRecord:
        if record.fork_of:
            await self.update(record.fork_of, metadata={"forked": True})
        return await super().create(record)


class ForgetsTheEpoch(SqliteStore):
    async def commit(self, delivery: Delivery, **changes: Any) -> list[Any]:
        newest = (await self.deliveries())[0]
        return await super().commit(newest, **changes)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (LosesTheLast, "check_02.*must not change the messages that are there"),
        (CopiesIntoTheSource, "check_12.*the record of the source must stay as it was"),
        (ForgetsTheEpoch, "check_27.*commit of a stale epoch must raise StaleEpoch"),
    ],
)
async def test_a_store_that_breaks_a_rule_is_told_which(broken: type[SqliteStore], rule: str, tmp_path: Path) -> None:
    numbers = itertools.count()
    with pytest.raises(AssertionError, match=rule):
        await check_store(lambda: broken(tmp_path / str(next(numbers)), 10))


async def test_the_inbox_is_checked_when_asked_for(tmp_path: Path) -> None:
    numbers = itertools.count()
    await check_store(lambda: ForgetsTheEpoch(tmp_path / str(next(numbers)), 10), inbox=False)
    assert next(numbers) == len(SESSION_STORE_CHECKS)
