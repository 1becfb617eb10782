"""Check that the store keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import amplifier_storage_postgres
from amplifier_core.documents import DocumentSearch
from amplifier_core.due_queues import DueQueues
from amplifier_core.plugins import Plugins
from amplifier_core.session_queries import SessionQueries
from amplifier_core.shared_stores import ReceivingStore, SharedStore
from amplifier_core.storage import PromptDeliveries, SpawnedSessions
from amplifier_core.store_views import MessageSearch, StoreViews
from amplifier_core.testing.store_checks import (
    DOCUMENT_CHECKS,
    INBOX_CHECKS,
    MESSAGE_CHECKS,
    QUERY_CHECKS,
    QUEUE_CHECKS,
    SEARCH_CHECKS,
    SESSION_STORE_CHECKS,
    VIEW_CHECKS,
)
from amplifier_storage_postgres import open_postgres
from amplifier_storage_postgres.store import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_CHECKS = SESSION_STORE_CHECKS + INBOX_CHECKS + QUEUE_CHECKS
ALL_CHECKS += DOCUMENT_CHECKS + SEARCH_CHECKS + VIEW_CHECKS + MESSAGE_CHECKS + QUERY_CHECKS


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.__name__)
async def test_the_store_keeps_the_contract(check: Callable[[PostgresStore], Any], store: PostgresStore) -> None:
    await check(store)


def test_the_store_is_registered_and_is_for_many_hosts() -> None:
    plugins = Plugins()
    plugins.register(amplifier_storage_postgres)
    assert plugins.storages.get("storage-postgres") is open_postgres
    for protocol in (
        SharedStore,
        ReceivingStore,
        DocumentSearch,
        DueQueues,
        PromptDeliveries,
        SpawnedSessions,
        StoreViews,
        MessageSearch,
        SessionQueries,
    ):
        assert issubclass(PostgresStore, protocol), protocol
