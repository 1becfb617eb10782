"""The stores that views are tested with hold what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_storage_sqlite import open_sqlite

from .filled import Filled, fill, fill_large

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_core.storage import DurableStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DurableStore]:
    store = open_sqlite({"folder": tmp_path})
    yield store
    await store.close()


async def test_the_small_store_has_a_delivery_in_every_state(store: DurableStore, tmp_path: Path) -> None:
    filled: Filled = await fill(store, tmp_path / "projects")
    states = {each.state for each in await store.deliveries()}
    assert states == {"pending", "claimed", "done", "dead", "refused", "skipped"}
    for session_id in filled.sessions.values():
        assert (await store.get(session_id)).message_count > 0


async def test_the_large_store_has_as_much_as_asked_for(store: DurableStore) -> None:
    await fill_large(store, sessions=10, deliveries=100, queues=4)
    assert len(await store.deliveries(limit=1000)) == 100
    sessions = await store.sessions()
    assert sum(each.event_id is not None for each in sessions) == 10
    assert len(await store.deliveries(state="dead")) == 1
