"""A request is enough to run a session: in any process, with its store and a fence."""

from __future__ import annotations

import pytest

from amplifier_core.errors import SessionConflict, StaleEpoch
from amplifier_core.hook_data import SpawnRequest
from amplifier_core.storage import Delivery
from amplifier_core.testing import MemoryStore
from amplifier_core.testing.shared_memory_store import SharedMemoryStore
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation import execute_request
from amplifier_foundation.spawning.own_loops import Fence
from tests.foundation.shelf import Shelf

PLAN = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-playbook", "config": {"rules": [{"when": {"user": "yes"}, "say": "Yes."}]}}],
}
REQUEST = SpawnRequest("s", "p", "elsewhere", "Say yes", PLAN, "")


async def test_a_request_runs_with_its_store() -> None:
    store = MemoryStore()
    result = await execute_request(REQUEST, store)
    assert (result.text, result.turns, result.error, result.usage["requests"]) == ("Yes.", 1, None, 1)
    record = await store.get("s")
    assert (record.status, record.parent_id, record.message_count) == ("completed", "p", 2)


@pytest.mark.parametrize("fence", [None, Fence("s", lambda text: None)])
async def test_a_small_storage_is_enough_for_a_request(fence: Fence | None) -> None:
    shelf = Shelf()
    assert (await execute_request(REQUEST, shelf, fence)).text == "Yes."
    transcript, metadata = shelf.load("s")
    assert (len(transcript), metadata["status"]) == (2, "completed")


async def test_a_request_runs_without_a_store() -> None:
    assert (await execute_request(REQUEST)).text == "Yes."


async def test_a_failure_is_a_part_of_the_result() -> None:
    result = await execute_request(SpawnRequest("s", "p", "", "Say no", PLAN, ""))
    assert "no rule" in str(result.error)
    assert (result.text, result.turns) == ("", 1)


async def test_a_closed_fence_lets_nothing_be_stored() -> None:
    store, fence = MemoryStore(), Fence("s", lambda text: None)
    fence.is_closed = True
    with pytest.raises(SessionConflict, match="given up"):
        await execute_request(REQUEST, store, fence)
    assert await store.find("s") == []


async def claim(store: SharedMemoryStore, owner: str) -> Delivery:
    """Return the waiting delivery, or the claimed one after its lease, as claimed by `owner`."""
    claimed = await store.claim("p", "q", owner=owner, lease=0.0, session_id="s")
    assert claimed is not None
    return claimed


async def test_a_claim_fences_a_shared_store() -> None:
    store = SharedMemoryStore()
    await store.enqueue("p", "q", "t", TriggerEvent(TriggerType.MANUAL, "t"))
    first = await claim(store, "one@here")
    assert (await execute_request(REQUEST, store, first)).text == "Yes."
    second = await claim(store, "two@there")
    told = await store.read("s")
    with pytest.raises(StaleEpoch):
        await execute_request(REQUEST, store, first)
    assert list(await store.read("s")) == list(told)
    assert (await execute_request(REQUEST, store, second)).text == "Yes."


async def test_a_claim_fences_no_other_store() -> None:
    delivery = Delivery("d", "p", "q", "t", TriggerEvent(TriggerType.MANUAL, "t"))
    with pytest.raises(ValueError, match="a store that several hosts share"):
        await execute_request(REQUEST, MemoryStore(), delivery)
