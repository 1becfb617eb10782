"""Check that the store of tests keeps the contract."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_core.testing import MemoryStore
from amplifier_core.testing.store_checks import (
    DOCUMENT_CHECKS,
    INBOX_CHECKS,
    MESSAGE_CHECKS,
    QUEUE_CHECKS,
    RECEIVING_CHECKS,
    SEARCH_CHECKS,
    SESSION_STORE_CHECKS,
    VIEW_CHECKS,
)

ALL_CHECKS = (
    SESSION_STORE_CHECKS
    + INBOX_CHECKS
    + DOCUMENT_CHECKS
    + SEARCH_CHECKS
    + RECEIVING_CHECKS
    + VIEW_CHECKS
    + MESSAGE_CHECKS
    + QUEUE_CHECKS
)


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.__name__)
async def test_the_store_in_memory_keeps_the_contract(check: Callable[[MemoryStore], Awaitable[None]]) -> None:
    await check(MemoryStore())


def test_the_store_in_memory_is_durable_in_type() -> None:
    assert isinstance(MemoryStore(), DurableStore)


async def test_nan_is_refused_in_memory_too() -> None:
    store = MemoryStore()
    await store.create(SessionRecord("s"))
    with pytest.raises(ValueError, match="not JSON compliant"):
        await store.append("s", [{"n": float("nan")}], at=0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        await store.create(SessionRecord("t", config={"n": float("nan")}))
    assert [record.session_id for record in await store.sessions()] == ["s"]


async def test_a_record_that_was_read_does_not_lead_into_the_store() -> None:
    store = MemoryStore()
    created = await store.create(SessionRecord("s", metadata={"tags": []}))
    created.metadata["tags"].append("changed")
    assert (await store.get("s")).metadata == {"tags": []}
