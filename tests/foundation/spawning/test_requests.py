"""A request is enough to run a session: in any process, with its store and a fence."""

from __future__ import annotations

import pytest

from amplifier_core.errors import SessionConflict
from amplifier_core.hook_data import SpawnRequest
from amplifier_core.testing import MemoryStore
from amplifier_foundation import execute_request
from amplifier_foundation.spawning.own_loops import Fence

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
