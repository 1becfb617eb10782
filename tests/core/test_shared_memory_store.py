"""Check that the shared store of tests keeps the contract of a store, and that of a shared one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import StaleEpoch
from amplifier_core.events import SessionEvent
from amplifier_core.shared_stores import Bounds, ReceivingStore, SharedDelivery, SharedStore
from amplifier_core.storage import Delivery, SessionRecord
from amplifier_core.testing import SharedMemoryStore, VirtualClock
from amplifier_core.testing.store_checks import (
    DOCUMENT_CHECKS,
    INBOX_CHECKS,
    MESSAGE_CHECKS,
    QUEUE_CHECKS,
    SEARCH_CHECKS,
    SESSION_STORE_CHECKS,
    VIEW_CHECKS,
)
from amplifier_core.triggers import TriggerEvent, TriggerType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ALL_CHECKS = SESSION_STORE_CHECKS + INBOX_CHECKS + QUEUE_CHECKS
ALL_CHECKS += DOCUMENT_CHECKS + SEARCH_CHECKS + VIEW_CHECKS + MESSAGE_CHECKS


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> SharedMemoryStore:
    return SharedMemoryStore(clock)


async def enqueue(store: SharedMemoryStore, only_on: str | None = None) -> Delivery | None:
    return await store.enqueue("/p", "q", "t", TriggerEvent(TriggerType.CUSTOM, "test"), only_on=only_on)


async def claim(store: SharedMemoryStore, owner: str, bounds: Bounds | None = None) -> Delivery | None:
    return await store.claim("/p", "q", owner=owner, lease=60, session_id="s", bounds=bounds)


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.__name__)
async def test_the_shared_store_in_memory_keeps_the_contract(
    check: Callable[[SharedMemoryStore], Awaitable[None]],
) -> None:
    await check(SharedMemoryStore())


def test_the_shared_store_in_memory_is_shared_in_type(store: SharedMemoryStore) -> None:
    assert isinstance(store, SharedStore)
    assert isinstance(store, ReceivingStore)


async def test_every_stored_time_is_that_of_the_clock(store: SharedMemoryStore, clock: VirtualClock) -> None:
    await store.create(SessionRecord("s"))
    await store.append("s", [{"role": "user", "content": "hi"}], at=0)
    delivery = await enqueue(store)
    assert delivery is not None
    assert {(await store.get("s")).updated, delivery.created, await store.now()} == {clock.now()}


async def test_a_fence_refuses_every_write_of_a_claim_that_was_taken_over(
    store: SharedMemoryStore, clock: VirtualClock
) -> None:
    await store.create(SessionRecord("s"))
    await enqueue(store)
    first = await claim(store, "a@one")
    assert first is not None
    fenced = store.fenced(first)
    assert await fenced.append("s", [{"role": "user", "content": "mine"}], at=0) == 1
    assert (await fenced.emit(SessionEvent("n", {}))).sequence == await store.last_sequence() == 1
    await clock.advance(61)
    second = await claim(fenced, "b@two")  # a claim needs no fence
    assert isinstance(second, SharedDelivery)
    assert second.owners == ("a@one", "b@two")
    writes: tuple[Awaitable[object], ...] = (
        fenced.create(SessionRecord("t")),
        fenced.append("s", [{"role": "user", "content": "late"}], at=1),
        fenced.update("s", name="late"),
        fenced.delete("s"),
        fenced.emit(SessionEvent("late", {})),
        fenced.write_documents([DocumentChange("/p", "c", "k", {})]),
        fenced.save_trigger_state("/p", "t", {"late": True}),
    )
    for write in writes:
        with pytest.raises(StaleEpoch):
            await write
    assert len(await store.read("s")) == await store.last_sequence() == 1
    assert await store.trigger_state("/p", "t") == {}
    assert await store.fenced(second).append("s", [{"role": "user", "content": "more"}], at=1) == 2


async def test_a_leader_whose_lease_is_over_enqueues_nothing(store: SharedMemoryStore, clock: VirtualClock) -> None:
    lease = await store.lead("timers", owner="a@one", lease=10)
    assert lease is not None
    assert await store.lead("timers", owner="b@two", lease=10) is None
    await clock.advance(11)
    again = await store.lead("timers", owner="a@one", lease=10)
    assert again is not None
    assert again.epoch == lease.epoch == 1
    await store.resign(again)
    other = await store.lead("timers", owner="b@two", lease=10)
    assert other is not None
    assert other.epoch == 2
    event = TriggerEvent(TriggerType.TIMER, "test", state={"at": 1})
    with pytest.raises(StaleEpoch, match="lease timers was taken over"):
        await store.enqueue("/p", "q", "t", event, leader=lease)
    assert await store.trigger_state("/p", "t") == {}
    assert await store.enqueue("/p", "q", "t", event, leader=other) is not None
    assert await store.leases() == [other]


async def test_bounds_count_all_hosts_and_hosts_keep_their_own(store: SharedMemoryStore, clock: VirtualClock) -> None:
    for _ in range(4):
        await enqueue(store)
    assert await claim(store, "a@one", Bounds(running=1)) is not None
    assert await claim(store, "b@two", Bounds(running=1)) is None
    assert await claim(store, "b@two", Bounds(begun=2, period=30)) is not None
    assert await claim(store, "a@one", Bounds(begun=2, period=30)) is None
    await clock.advance(31)
    assert await claim(store, "a@one", Bounds(begun=2, period=30)) is not None
    assert await store.release("/p", owners=["b@two"]) == 1


async def test_only_its_host_claims_a_delivery_until_another_adopts_it(store: SharedMemoryStore) -> None:
    await enqueue(store, only_on="one")
    assert await claim(store, "b@two") is None
    assert await store.adopt("one", "two") == 1
    assert await claim(store, "a@one") is None
    assert await claim(store, "b@two") is not None


async def test_places_of_a_rate_are_taken_one_after_another(store: SharedMemoryStore, clock: VirtualClock) -> None:
    assert [await store.reserve("/p", "rate", 2, 60) for _ in range(5)] == [0, 0, 60, 60, 120]
    await clock.advance(100)
    assert await store.reserve("/p", "rate", 2, 60) == 20


async def test_processes_are_listed_until_they_leave(store: SharedMemoryStore, clock: VirtualClock) -> None:
    await store.present("a@one", {"pid": 1})
    await clock.advance(5)
    await store.present("b@two", {"pid": 2})
    await store.present("a@one", {"pid": 1, "draining": True})
    one, two = await store.processes()
    assert (one.host, one.seen - one.started, one.facts["draining"]) == ("one", timedelta(seconds=5), True)
    await store.absent("a@one")
    assert await store.processes() == [two]


async def test_listeners_hear_of_news_until_they_end(store: SharedMemoryStore) -> None:
    heard: list[str] = []
    end = store.listen(lambda: heard.append("news"))
    await enqueue(store)
    await store.emit(SessionEvent("n", {}))
    assert heard
    end()
    end()
    heard.clear()
    await store.emit(SessionEvent("n", {}))
    assert heard == []


async def test_an_event_of_another_site_is_received_once(store: SharedMemoryStore) -> None:
    event = SessionEvent("n", {"a": 1}, sequence=99)
    received = await store.receive(event, "site")
    assert received is not None
    assert (received.event_id, received.sequence) == (event.event_id, 1)
    assert await store.receive(event, "site") is None
    assert await store.receive(event, "another site") is not None
