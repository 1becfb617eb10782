"""A request is enough to run a session: in any process, with its store and a fence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amplifier_core import hookimpl
from amplifier_core.errors import SessionConflict, StaleEpoch
from amplifier_core.hook_data import RunResult, SpawnRequest
from amplifier_core.storage import Delivery
from amplifier_core.testing import MemoryStore
from amplifier_core.testing.shared_memory_store import SharedMemoryStore
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation import execute_request
from amplifier_foundation.spawning.agents import AgentSpawner
from amplifier_foundation.spawning.own_loops import Fence
from tests.foundation.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import AmplifierSession
    from amplifier_core.hook_data import SessionBuilder
    from amplifier_core.hookspecs import Register, RunnerFactory
    from amplifier_core.plugins import Plugins
    from amplifier_foundation import PreparedBundle

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


async def test_a_stored_session_takes_the_instruction_of_a_request_as_its_next_turn() -> None:
    store = MemoryStore()
    for turns in (1, 2):
        result = await execute_request(replace(REQUEST, instruction=f"Say yes, {turns}"), store)
        record = await store.get("s")
        assert (result.turns, record.turn_count, record.message_count) == (1, turns, 2 * turns)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_request_that_comes_twice_is_answered_with_one_turn(is_killed: bool) -> None:
    store = MemoryStore()
    await execute_request(REQUEST, store)
    if is_killed:  # after the last message, before the end of the session
        await store.update("s", status="running", turn_count=0)
    result = await execute_request(REQUEST, store)
    record = await store.get("s")
    assert (result.text, result.turns, record.turn_count, record.message_count) == ("Yes.", 0, 1, 2)


async def test_a_runner_elsewhere_takes_one_turn_for_each_call_of_an_agent(
    make_bundle: Callable[..., PreparedBundle], parent: AmplifierSession, plugins: Plugins
) -> None:
    store = MemoryStore()

    class Elsewhere:
        async def run(self, request: SpawnRequest, build: SessionBuilder) -> RunResult:
            return await execute_request(request, store)

        async def stop(self, session_id: str) -> bool:
            return False

    class Offer:
        @hookimpl
        def amplifier_register_runner(self, register: Register[RunnerFactory]) -> None:
            register("runner-elsewhere", Elsewhere)

    plugins.register(Offer(), "elsewhere")
    agents = AgentSpawner(make_bundle(agents={"a": {"runner": "elsewhere"}}), store, plugins=plugins)
    told = [await agents.spawn("a", "one", parent, sub_session_id="s")]
    told += [await agents.resume("s", instruction, parent) for instruction in ("two", "two", "three")]
    answers = ["You said: one", "You said: two", "You said: two", "You said: three"]
    assert [(each["output"], each["turn_count"]) for each in told] == [*zip(answers, (1, 2, 3, 4), strict=True)]
    record = await store.get("s")
    assert (record.turn_count, record.message_count) == (4, 8)


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
